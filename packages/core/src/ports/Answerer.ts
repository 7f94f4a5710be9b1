/**
 * Port: answers questions. Prompts and their length, retries and fallbacks are up to the adapter.
 */
import { Context, Effect, Exit, Layer, Schema, Stream } from "effect";
import { Name, type Chatbot } from "../model/Chatbot.ts";
import type { Entry, Metadata, Usage } from "../model/Entry.ts";
import { AnswerUnavailable, placeOf, StorageUnavailable } from "../model/Errors.ts";
import { CurrentAsk, type AskOrigin } from "../services/asking/AskLimits.ts";

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
  /**
   * Metadata to keep with the entry, such as `{ sources: [{ title, url }] }`. The fields of several parts are merged; a
   * `Restart` discards them. All of it may have 16 KiB as JSON, and 100 levels.
   */
  | { readonly _tag: "Metadata"; readonly metadata: Metadata }
  /** The cost of the answer, sent at the end if it is known. Attempts and latency include failed attempts. */
  | { readonly _tag: "Usage"; readonly usage: Usage };

/** The argument of an {@link AnswererFunction}. */
export interface AnswererCall extends AskOrigin {
  readonly chatbot: Chatbot;
  readonly question: string;
  /** The chat's unflagged entries, newest first, the hello entry included. They are read from the store on demand. */
  readonly earlier: AsyncIterable<Entry>;
  /** Parley aborts it if the ask ends first, for example because the client cancels or the deadline passes. */
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
            ...(yield* CurrentAsk),
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
            return yield* new AnswerUnavailable({
              reason: `the answerer returned a value of type ${typeof result} instead of text or an async iterable`,
            });
          return typeof result === "string"
            ? Stream.succeed<AnswerPart>({ _tag: "Delta", text: result })
            : Stream.fromAsyncIterable(toParts(result), toUnavailable);
        }, Stream.unwrap),
      }),
    );
}

/** A layer that provides an answerer, such as `languageModel(…)`. */
export interface AnswererLayer extends Layer.Layer<Answerer, unknown> {}

async function* toParts(parts: AsyncIterable<string | AnswerPart>): AsyncGenerator<AnswerPart> {
  for await (const part of parts) {
    if (typeof part === "string") yield { _tag: "Delta", text: part };
    else if (isPart(part)) yield part;
    else {
      const tag = String(Object(part)._tag ?? "");
      const flaw = ["Delta", "Metadata", "Usage"].includes(tag)
        ? `an invalid part with the tag ${tag}`
        : tag === ""
          ? `a value of type ${typeof part} instead of text or a part`
          : `a part with the unknown tag ${tag}`;
      throw new AnswerUnavailable({ reason: `the answerer yielded ${flaw}` });
    }
  }
}

/** A part that the core accepts. Counts may be any numbers: they are rounded, because the answer is paid for. */
const isPart = Schema.is(
  Schema.Union([
    Schema.TaggedStruct("Delta", { text: Schema.String }),
    Schema.TaggedStruct("Restart", {}),
    Schema.TaggedStruct("Metadata", { metadata: Schema.Record(Schema.String, Schema.Unknown) }),
    Schema.TaggedStruct("Usage", {
      usage: Schema.Struct({
        provider: Name,
        model: Name,
        promptTokens: Schema.Number,
        completionTokens: Schema.Number,
        attempts: Schema.Number,
        latencyMillis: Schema.Number,
      }),
    }),
  ]),
);

const toUnavailable = (cause: unknown) =>
  cause instanceof AnswerUnavailable || cause instanceof StorageUnavailable
    ? cause
    : new AnswerUnavailable({ reason: `the answerer threw ${placeOf(cause)}`, cause });
