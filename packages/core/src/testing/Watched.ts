/**
 * Ports that compare all that they give with what was written through them, whatever a check is about: every list,
 * history, export, sum and turn of a chatbot that nobody writes to meanwhile, and at the end what lies in the
 * storage.
 */
import { Context, Effect, Exit, Option, Stream } from "effect";
import type { Chat } from "../Chat.ts";
import { ChatArchive, type ArchiveRecord, type UsageSum } from "../ChatArchive.ts";
import { ChatStore } from "../ChatStore.ts";
import { helloEntry, type Entry } from "../Entry.ts";
import { newest, newestChats, type ChatQuery } from "../ListQuery.ts";
import { turnEntries, turnLease, TurnStore } from "../TurnStore.ts";
import { CheckFailed, same, type Check } from "./Check.ts";
import { chatPage, entryPage } from "./Model.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";
import {
  addChat,
  addEntry,
  addRecords,
  chatOf,
  entriesOf,
  isKnown,
  makeWritten,
  meantBy,
  recordsOf,
  remove,
  sumsOf,
  type Written,
} from "./Written.ts";

/** What was written to one chatbot, and whether that is all. */
interface Book {
  readonly written: Written;
  /** Writes that began, and those of them that run. */
  begun: number;
  running: number;
  /** `false` once a write may or may not have taken place. */
  isSure: boolean;
}

/** What was written through the ports, by chatbot. */
export class Ledger extends Context.Service<
  Ledger,
  { readonly written: (chatbot: number) => Written }
>()("@parley/core/testing/Ledger") {}

/** Since `begun` nobody wrote or writes, but for `others`. */
const isQuiet = (book: Book, begun: number, others = 0) =>
  book.isSure && book.begun === begun && book.running === others;

/** A write; `note` learns what came of it and whether nobody else wrote meanwhile. */
const writing = <A, E extends { readonly _tag: string }, R>(
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
        } else if (exit.cause.reasons.some((reason) => !isRefusal(reason))) {
          book.isSure = false;
        }
        book.running--;
      }),
    );
  });

/** Whether it is certain that nothing was written. */
const isRefusal = (reason: { readonly _tag: string; readonly error?: { readonly _tag: string } }) =>
  reason._tag === "Fail" && reason.error?._tag !== "StorageUnavailable";

/** A reading; where nobody wrote meanwhile, `compare` judges what it gave or that it found no chat. */
const reading = <A, E extends { readonly _tag: string }, R>(
  book: Book,
  read: Effect.Effect<A, E, R>,
  compare: (given: A | "ChatNotFound") => Effect.Effect<void, CheckFailed>,
): Effect.Effect<A, E, R> =>
  Effect.suspend(() => {
    const { begun, running } = book;
    const judge = (given: A | "ChatNotFound") =>
      running === 0 && isQuiet(book, begun) ? Effect.orDie(compare(given)) : Effect.void;
    return read.pipe(
      Effect.tap(judge),
      Effect.tapError(({ _tag }) => (_tag === "ChatNotFound" ? judge(_tag) : Effect.void)),
    );
  });

const byModel = (sums: ReadonlyArray<UsageSum>) =>
  sums.toSorted((a, b) => {
    const [left, right] = [a, b].map(({ model, provider }) => JSON.stringify([provider, model]));
    return left! < right! ? -1 : 1;
  });

/** A chat that did not exist when these had been written. */
const isNextChat = (chat: Chat, newestId: number, newest: Chat | undefined) =>
  Effect.gen(function* () {
    yield* same("whether a chat's id is greater than all before", chat.id > newestId, true);
    const isLater = newest === undefined || chat.createTime >= newest.createTime;
    yield* same("whether a chat's time is not before the last", isLater, true);
  });

/** The next of a chat's entries; `before` is what was known of them when it was asked for. */
const isNextEntry = (
  { entryIds }: Written,
  { createTime, id }: Entry,
  chat: Chat,
  before: Entry | undefined,
) =>
  Effect.gen(function* () {
    yield* same("whether an entry's id was used before", entryIds.has(id), false);
    yield* same("whether an entry's id ascends", id > (before?.id ?? 0), true);
    const isLater = createTime >= (before?.createTime ?? chat.createTime);
    yield* same("whether an entry's time is not before the last", isLater, true);
  });

const watchedChats = (
  bookOf: (chatbot: number) => Book,
  chats: ChatStore["Service"],
): ChatStore["Service"] => ({
  createChat: (chatbot, wanted, retryKey) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      const { written } = book;
      const { chats: before, newestId } = written;
      return writing(book, chats.createChat(chatbot, wanted, retryKey), (made, isAlone) =>
        Effect.gen(function* () {
          const { chat, replayed } = made;
          if (replayed) {
            yield* same("whether a key gives what was made before", retryKey !== null, true);
            return isAlone ? yield* same("its chat", chat, chatOf(written, chat.id)) : undefined;
          }
          const { helloMessage, name, userRef } = wanted;
          yield* same("a new chat", [chat.name, chat.userRef], [name, userRef]);
          yield* isNextChat(chat, newestId, before.at(-1));
          addChat(written, chat);
          if (helloMessage === null) return;
          const [hello, ...more] = yield* chats.listEntries(chatbot, chat.id, newest).pipe(
            Effect.map(({ items }) => items.toReversed()),
            Effect.catchTag("ChatNotFound", () => Effect.succeed([])),
          );
          if (hello === undefined && !isAlone) book.isSure = false;
          if (hello === undefined || more.length > 0) {
            return yield* same("how many entries it has", isAlone && more.length, false);
          }
          const { createTime, id } = hello;
          const { usage, ...texts } = helloEntry(helloMessage);
          yield* same("its entry", hello, { ...texts, id, chatId: chat.id, createTime });
          yield* isNextEntry(written, hello, chat, undefined);
          addEntry(written, { entry: hello, usage });
        }),
      );
    }),

  listChats: (chatbot, query) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      return reading(book, chats.listChats(chatbot, query), (page) =>
        same(`the chats of ${JSON.stringify(query)}`, page, chatPage(book.written.chats, query)),
      );
    }),

  listEntries: (chatbot, chat, query) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      const { written } = book;
      return reading(book, chats.listEntries(chatbot, chat, query), (page) =>
        same(
          `the entries of ${JSON.stringify(query)}`,
          page,
          isKnown(written, chat) ? entryPage(entriesOf(written, chat), query) : "ChatNotFound",
        ),
      );
    }),
});

const watchedTurns = (
  bookOf: (chatbot: number) => Book,
  turns: TurnStore["Service"],
  chats: ChatStore["Service"],
  names: Set<string>,
): TurnStore["Service"] => ({
  ...turns,

  take: (chatbot, chat, retryKey) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      const { written } = book;
      return turns.take(chatbot, chat, retryKey).pipe(
        Effect.tap((taken) =>
          Effect.suspend(() => {
            if (taken._tag === "Held") {
              const within = taken.forMillis > 0 && taken.forMillis <= turnLease;
              return same("whether it is held for a lease at most", within, true);
            }
            if (taken._tag === "Done") return Effect.void;
            const { id, newest: _, ...turn } = taken.turn;
            const isNew = !names.has(id);
            names.add(id);
            return Effect.andThen(
              same("whether a turn has a name of its own", isNew, true),
              same("what the turn is of", turn, { chatbot, chat, retryKey }),
            );
          }).pipe(Effect.orDie),
        ),
        (take) =>
          reading(book, take, (taken) => {
            if (taken === "ChatNotFound") {
              return same("whether there is the chat", isKnown(written, chat ?? 0), false);
            }
            if (taken._tag === "Held") return Effect.void;
            if (taken._tag === "Done") {
              const { chatId, id } = taken.entry;
              const entry = entriesOf(written, chatId).find((one) => one.id === id);
              return same("the entry that a key made", taken.entry, entry);
            }
            const entries = chat === null ? [] : entriesOf(written, chat);
            const newest = entries.slice(-turnEntries).toReversed();
            return same("the newest entries", taken.turn.newest, newest);
          }),
      );
    }),

  earlier: (turn, before) =>
    Effect.suspend(() => {
      const book = bookOf(turn.chatbot);
      return reading(book, turns.earlier(turn, before), (entries) => {
        const all = turn.chat === null ? [] : entriesOf(book.written, turn.chat);
        const older = all.filter(({ id }) => id < before).slice(-turnEntries);
        return same(`the entries before ${before}`, entries, older.toReversed());
      });
    }),

  append: (turn, { usage, ...texts }) =>
    Effect.suspend(() => {
      const { chatbot } = turn;
      const book = bookOf(chatbot);
      const { written } = book;
      const { chats: before, newestId } = written;
      const last = turn.chat === null ? undefined : entriesOf(written, turn.chat).at(-1);
      return writing(book, turns.append(turn, { ...texts, usage }), (entry, isAlone) =>
        Effect.gen(function* () {
          const { chatId, createTime, id } = entry;
          yield* same("what was appended", entry, { ...texts, id, chatId, createTime });
          if (turn.chat === null) {
            const { items } = yield* chats.listChats(chatbot, { ...newestChats, id: chatId });
            const [chat] = items;
            // Somebody erased it at once.
            if (chat === undefined && !isAlone) return void (book.isSure = false);
            yield* same("its chat", chat, {
              id: chatId,
              name: null,
              userRef: null,
              createTime: chat?.createTime,
            });
            yield* isNextChat(chat!, newestId, before.at(-1));
            addChat(written, chat!);
          } else yield* same("whose it is", chatId, turn.chat);
          const chat = chatOf(written, chatId);
          if (chat === undefined && !isAlone) return;
          yield* same("whether there is its chat", chat !== undefined, true);
          yield* isNextEntry(written, entry, chat!, last);
          addEntry(written, { entry, usage });
        }),
      );
    }),
});

const watchedArchive = (
  bookOf: (chatbot: number) => Book,
  archive: ChatArchive["Service"],
): ChatArchive["Service"] => ({
  ...archive,

  erase: (chatbot, which) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      const { written } = book;
      return writing(book, archive.erase(chatbot, which), (count, isAlone) =>
        Effect.gen(function* () {
          const gone = meantBy(written, which);
          if (isAlone) yield* same("how many are erased", count, gone.length);
          // Of others that were made or used meanwhile nobody knows.
          else if (which._tag !== "Chat") book.isSure = false;
          remove(written, gone);
        }),
      );
    }),

  import: (chatbot, records) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      let read: Array<ArchiveRecord> = [];
      const noted = Stream.suspend(() => {
        read = [];
        return Stream.map(records, (record) => {
          read.push(record);
          return record;
        });
      });
      return writing(
        book,
        archive.import(chatbot, noted) as Effect.Effect<number, any, any>,
        (count) =>
          Effect.suspend(() => {
            addRecords(book.written, read);
            const chats = read.filter(({ _tag }) => _tag === "Chat");
            return same("how many are imported", count, chats.length);
          }),
      );
    }),

  export: (chatbot) =>
    Stream.suspend(() => {
      const book = bookOf(chatbot);
      const { begun, running } = book;
      const read: Array<ArchiveRecord> = [];
      return archive.export(chatbot).pipe(
        Stream.map((record) => {
          read.push(record);
          return record;
        }),
        Stream.onEnd(
          Effect.suspend(() =>
            running === 0 && isQuiet(book, begun)
              ? Effect.orDie(same("the export", read, recordsOf(book.written)))
              : Effect.void,
          ),
        ),
      );
    }),

  usage: (chatbot, since) =>
    Effect.suspend(() => {
      const book = bookOf(chatbot);
      return reading(book, archive.usage(chatbot, since), (sums) =>
        same(
          `the usage since ${since.toISOString()}`,
          sums === "ChatNotFound" ? sums : byModel(sums),
          byModel(sumsOf(book.written, since)),
        ),
      );
    }),
});

/** The newest chats, and the first by name. */
const finalQueries: ReadonlyArray<ChatQuery> = [
  newestChats,
  { ...newestChats, orderBy: [{ field: "name", descending: false }] },
];

/** The check, over ports that compare. */
export const watchedCheck = <R>({ name, run }: Check<R>): Check<R | StoreUnderTest> => ({
  name,
  run: watched(run),
});

/** Runs a check's effect over ports that compare; what they find wrong it fails with. */
export const watched = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, E | CheckFailed, Exclude<R, Ledger> | StoreUnderTest> =>
  Effect.gen(function* () {
    const books = new Map<number, Book>();
    const bookOf = (chatbot: number) => {
      let book = books.get(chatbot);
      if (book === undefined) {
        books.set(chatbot, (book = { written: makeWritten(), begun: 0, running: 0, isSure: true }));
      }
      return book;
    };
    const names = new Set<string>();
    const context = yield* Effect.context<StoreUnderTest>();
    const { peek, second, ...rest } = yield* StoreUnderTest;
    const chats = Option.getOrElse(Context.getOption(context, ChatStore), () => second.chats);
    const turns = Option.getOrElse(Context.getOption(context, TurnStore), () => second.turns);
    const archive = Option.getOrElse(Context.getOption(context, ChatArchive), () => second.archive);
    const ours = {
      chats: watchedChats(bookOf, chats),
      turns: watchedTurns(bookOf, turns, chats, names),
      archive: watchedArchive(bookOf, archive),
    };
    // The same again, where there is no other.
    const theirs = {
      ...second,
      chats: second.chats === chats ? ours.chats : watchedChats(bookOf, second.chats),
      turns:
        second.turns === turns
          ? ours.turns
          : watchedTurns(bookOf, second.turns, second.chats, names),
      archive: second.archive === archive ? ours.archive : watchedArchive(bookOf, second.archive),
    };
    const result = yield* (effect as Effect.Effect<A, E, R | Ledger>).pipe(
      Effect.provideService(ChatStore, ours.chats),
      Effect.provideService(TurnStore, ours.turns),
      Effect.provideService(ChatArchive, ours.archive),
      Effect.provideService(StoreUnderTest, { ...rest, peek, second: theirs }),
      Effect.provideService(Ledger, { written: (chatbot) => bookOf(chatbot).written }),
    );
    for (const [chatbot, book] of books) {
      if (book.running > 0) continue;
      const stored = yield* peek(chatbot);
      const all = stored.map(({ entries: _, ...chat }): Chat => chat);
      for (const query of finalQueries) {
        const page = yield* chats.listChats(chatbot, query);
        yield* same("at last, the chats", page, chatPage(all, query));
      }
      if (!book.isSure) continue;
      const expected = book.written.chats.map((chat) => ({
        ...chat,
        entries: book.written.entries.get(chat.id)!.map(({ entry, usage }) => {
          const { chatId: _, ...stored } = entry;
          return { ...stored, usage };
        }),
      }));
      yield* same("what lies in the storage", stored, expected);
    }
    return result;
  }).pipe(
    Effect.catchDefect((defect) =>
      defect instanceof CheckFailed ? Effect.fail(defect) : Effect.die(defect),
    ),
  ) as any;
