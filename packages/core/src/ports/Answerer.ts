/**
 * Port: answers questions. Prompts and their length, retries and fallbacks are up to the adapter.
 */
import { Context, Effect, Exit, Layer, Stream } from "effect";
import type { Chatbot } from "../model/Chatbot.ts";
import type { Entry, Usage } from "../model/Entry.ts";
import { AnswerUnavailable, nameOf, StorageUnavailable } from "../model/Errors.ts";

/** A part of an answer. */
export type AnswerPart =
  /** The next delta of the answer's text. */
  | { readonly _tag: "Delta"; readonly text: string }
  /**
   * Discards the deltas sent so far, because another attempt is starting. The ask fails if a reader has already
   * received any of them. Send a restart as soon as an attempt fails, so that no reader receives that attempt's text
   * during the pause before the next attempt.
   */
  | { readonly _tag: "Restart" }
  /** The cost of the answer, sent as the last part if it is known. Attempts and latency include failed attempts. */
  | { readonly _tag: "Usage"; readonly usage: Usage };

/** The argument of an {@link AnswererFunction}. */
export interface AnswererCall {
  readonly chatbot: Chatbot;
  readonly question: string;
  /** The chat's unflagged entries, newest first, the hello entry included. They are read from the store on demand. */
  readonly earlier: AsyncIterable<Entry>;
  /** Aborted when nobody needs the answer any more, for example when the client cancelled or the deadline passed. */
  readonly signal: AbortSignal;
}

/**
 * A function that answers a question. It returns the text or an async iterable of deltas, or a promise of either. The
 * iterable may also yield an {@link AnswerPart}, such as the cost of the answer. If the function throws, nothing is
 * stored, and the ask fails: with the thrown error if it is an `AnswerUnavailable` or a `StorageUnavailable` (which
 * reading `earlier` may throw); otherwise with an `AnswerUnavailable` whose `cause` is the thrown error.
 */
export type AnswererFunction = (call: AnswererCall) => Answer | Promise<Answer>;
type Answer = string | AsyncIterable<string | AnswerPart>;

/** Answers questions. */
export class Answerer extends Context.Service<
  Answerer,
  {
    /**
     * Answers the question, part by part. `earlier` emits the chat's unflagged entries, newest first, and reads them on
     * demand. A failure is final: the stream is not run again. `Asking` ends the stream early at `AskDeadline`, when
     * the ask is cancelled or loses its turn, when the answer exceeds its maximum length, or at a `Restart` if a reader
     * has already received a delta.
     */
    readonly answer: (
      chatbot: Chatbot,
      earlier: Stream.Stream<Entry, StorageUnavailable>,
      question: string,
    ) => Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable>;
  }
>()("@parley/core/Answerer") {
  /** Creates an answerer from a plain function. */
  static readonly layerFunction = (answer: AnswererFunction): Layer.Layer<Answerer> =>
    Layer.succeed(
      Answerer,
      Answerer.of({
        answer: Effect.fnUntraced(function* (chatbot, earlier, question) {
          const services = yield* Effect.context<never>();
          const { signal } = yield* Effect.acquireRelease(
            Effect.sync(() => new AbortController()),
            (controller, exit) => Effect.sync(() => Exit.isFailure(exit) && controller.abort()),
          );
          const call = {
            chatbot,
            question,
            signal,
            earlier: Stream.toAsyncIterableWith(earlier, services),
          };
          const result = yield* Effect.tryPromise({
            try: async () => answer(call),
            catch: toUnavailable,
          });
          if (
            typeof result !== "string" &&
            !(Object(result)[Symbol.asyncIterator] instanceof Function)
          )
            throw new TypeError(
              `The answerer returned a value of type ${typeof result} instead of text or an async iterable.`,
            );
          const parts =
            typeof result === "string"
              ? Stream.succeed(result)
              : Stream.fromAsyncIterable(result, toUnavailable);
          return Stream.map(parts, toPart);
        }, Stream.unwrap),
      }),
    );
}

/** A layer that provides an answerer, such as `languageModel(…)`. */
export interface AnswererLayer extends Layer.Layer<Answerer, unknown> {}

const toPart = (part: string | AnswerPart): AnswerPart => {
  if (typeof part === "string") return { _tag: "Delta", text: part };
  if (typeof part?._tag === "string") return part;
  throw new TypeError(
    `The answerer yielded a value of type ${typeof part} instead of text or an AnswerPart.`,
  );
};

const toUnavailable = (cause: unknown) =>
  cause instanceof AnswerUnavailable || cause instanceof StorageUnavailable
    ? cause
    : new AnswerUnavailable({ reason: `the answerer threw ${nameOf(cause)}`, cause });
