/**
 * Who writes to which chatbot, and what came of it, so that it is known when what is read must be what was written.
 */
import { type Cause, Context, Effect, Exit, Predicate } from "effect";
import type { CheckFailed } from "./Check.ts";
import { makeWritten, type Written } from "./Written.ts";

/** What was written to one chatbot, and whether that is all. */
export interface Book {
  readonly written: Written;
  /** Writes that began, and those of them that run. */
  begun: number;
  running: number;
  /** `false` once a write may or may not have taken place. */
  isSure: boolean;
}

/** What was written through the ports, by chatbot, and the names of the turns that were given. */
export class Ledger extends Context.Service<
  Ledger,
  {
    readonly books: ReadonlyMap<number, Book>;
    readonly of: (chatbot: number) => Book;
    readonly turns: Set<string>;
  }
>()("@parley/core/testing/Ledger") {}

export const makeLedger = (): Ledger["Service"] => {
  const books = new Map<number, Book>();
  const of = (chatbot: number) => {
    let book = books.get(chatbot);
    if (book === undefined) {
      book = { written: makeWritten(), begun: 0, running: 0, isSure: true };
      books.set(chatbot, book);
    }
    return book;
  };
  return { books, of, turns: new Set() };
};

/** Since `begun` nobody wrote or writes, but for `others`. */
const isQuiet = (book: Book, begun: number, others = 0) =>
  book.isSure && book.begun === begun && book.running === others;

/** A write; `note` learns what came of it and whether nobody else wrote meanwhile. */
export const writing = <A, E, R>(
  book: Book,
  write: Effect.Effect<A, E, R>,
  note: (made: A, isAlone: boolean) => Effect.Effect<void, unknown>,
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const isFirst = book.running === 0;
    const begun = ++book.begun;
    book.running++;
    return Effect.onExit(write, (exit) =>
      Effect.gen(function* () {
        if (Exit.isSuccess(exit)) {
          yield* Effect.orDie(note(exit.value, isFirst && isQuiet(book, begun, 1)));
        } else if (!exit.cause.reasons.every(isRefusal)) {
          book.isSure = false;
        }
      }).pipe(Effect.ensuring(Effect.sync(() => book.running--))),
    );
  });

/** Whether it is certain that nothing was written. */
const isRefusal = (reason: Cause.Reason<unknown>) =>
  reason._tag === "Fail" && !Predicate.isTagged(reason.error, "StorageUnavailable");

/** From now on: judges what was read, if nobody writes before. */
export const judging = <A>(
  book: Book,
  compare: (given: A) => Effect.Effect<void, CheckFailed>,
): ((given: A) => Effect.Effect<void>) => {
  const { begun, running } = book;
  return (given) =>
    running === 0 && isQuiet(book, begun) ? Effect.orDie(compare(given)) : Effect.void;
};

/** A reading; where nobody wrote meanwhile, `compare` judges what it gave or that it found no chat. */
export const reading = <A, E, R>(
  book: Book,
  read: Effect.Effect<A, E, R>,
  compare: (given: A | "ChatNotFound") => Effect.Effect<void, CheckFailed>,
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const judge = judging(book, compare);
    return read.pipe(
      Effect.tap(judge),
      Effect.tapError((error) =>
        Predicate.isTagged(error, "ChatNotFound") ? judge(error._tag) : Effect.void,
      ),
    );
  });
