/**
 * One call of one language model.
 */
import { traceHeaders } from "@parley/core/ports";
import type * as Ai from "ai";
import { Duration, Effect, Stream } from "effect";
import { classifyError, cutOff, makeFailure, type ModelFailure } from "./ModelFailure.ts";
import type { Message } from "./Prompt.ts";

/**
 * A model object of the AI SDK, from any provider. A model's bare name is excluded: the AI SDK would send the chat to
 * its hosted gateway.
 */
export type LanguageModel = Exclude<Ai.LanguageModel, string>;

export const loadAi = Effect.promise(() => import("ai"));

export interface CallOptions {
  readonly ai: typeof Ai;
  readonly model: LanguageModel;
  readonly maxOutputTokens: number;
  /** The longest time between two parts of the model's response, reasoning included. */
  readonly idleTimeout: Duration.Duration;
}

/** The tokens that a call took, as the provider reports them. */
export interface Tokens {
  readonly prompt: number;
  readonly completion: number;
}

/**
 * Calls the model and emits the pieces of its answer, without white space before the first. Reasoning is left out, also
 * when the model sends it as text between `<think>` tags. The call succeeds if the answer is complete, or was ended by
 * `maxOutputTokens`. Interrupting it aborts the request.
 */
export const callModel = (
  { ai, idleTimeout, maxOutputTokens, model }: CallOptions,
  messages: ReadonlyArray<Message>,
  emit: (text: string) => Effect.Effect<unknown>,
): Effect.Effect<Tokens, ModelFailure> =>
  Effect.gen(function* () {
    const abortSignal = yield* Effect.abortSignal;
    const headers = yield* traceHeaders;
    const middleware = ai.extractReasoningMiddleware({ tagName: "think" });
    const response = Effect.tryPromise({
      try: () =>
        ai.wrapLanguageModel({ model, middleware }).doStream({
          prompt: messages.map((message) =>
            message.role === "system"
              ? { role: message.role, content: message.content }
              : { role: message.role, content: [{ type: "text", text: message.content }] },
          ),
          headers,
          maxOutputTokens,
          abortSignal,
        }),
      catch: classifyError,
    });
    const silent = `no answer for ${Duration.toMillis(idleTimeout)} ms`;
    const parts = Effect.map(response, ({ stream }) =>
      Stream.fromReadableStream({
        evaluate: () => stream,
        onError: classifyError,
        // Cancelling would wait until the provider closes the connection, which may never happen.
        releaseLockOnEnd: true,
      }),
    ).pipe(
      Stream.unwrap,
      Stream.timeoutOrElse({
        duration: idleTimeout,
        orElse: () => Stream.fail(makeFailure("timeout", silent)),
      }),
    );

    let hasText = false;
    type Part = Stream.Success<typeof parts>;
    let finish: Extract<Part, { type: "finish" }> | undefined;
    yield* Stream.runForEach(parts, (part): Effect.Effect<unknown, ModelFailure> => {
      if (part.type === "error") return Effect.fail(classifyError(part.error));
      if (part.type === "finish") finish = part;
      if (part.type !== "text-delta") return Effect.void;
      const text = hasText ? part.delta : part.delta.replace(/^\p{White_Space}+/u, "");
      if (text === "") return Effect.void;
      hasText = true;
      return emit(text);
    });
    const failure = finish === undefined ? cutOff : failureOf(finish);
    if (failure !== null) return yield* failure;
    const { finishReason, usage } = finish!;
    const isCapped = finishReason.unified === "length" || /max|length/i.test(`${finishReason.raw}`);
    if (!hasText) return yield* isCapped ? reasoningOnly : empty;
    const { inputTokens, outputTokens } = usage;
    return { prompt: inputTokens.total ?? 0, completion: outputTokens.total ?? 0 };
  }).pipe(Effect.scoped);

interface Finish {
  readonly finishReason: { readonly raw: string | undefined; readonly unified: string };
  readonly providerMetadata?: Readonly<Record<string, { readonly [name: string]: unknown }>>;
}

const empty = makeFailure("empty", "the answer is empty");
const reasoningOnly = makeFailure(
  "reasoning_only",
  "the model spent the tokens of its answer on reasoning, and said nothing",
);

/** Finish words of content filters, by any provider's name. */
const filterWords =
  /filter|safety|unsafe|recitation|prohibited|block(ed|list)|spii|refus|sensitive|guardrail|toxic|moderat|violation/i;
/** Finish words that name another failure, or that wait for the result of a tool. */
const failureWords =
  /error|abort|cancel|fail|interrupt|insufficient|malformed|invalid|time_?(out|limit)|tool|function|^language$/i;

/** Why an answer with this finish is not complete; `null` if it is. A word that names no failure says "done". */
const failureOf = ({ finishReason: { raw, unified }, providerMetadata }: Finish) => {
  // The provider chooses the word: a long one may quote the chat.
  const word = raw !== undefined && /^[\w-]{1,40}$/.test(raw) ? raw : unified;
  if (unified === "content-filter" || filterWords.test(`${raw}`)) {
    return makeFailure("content_filter", `a content filter ended the answer: ${word}`);
  }
  if (unified === "stop" || unified === "length") return null;
  // An adapter of the AI SDK adds a finish without a raw reason to a stream that breaks off.
  if (raw === undefined || providerMetadata?.["parley"]?.["isOpen"] === true) return cutOff;
  return unified === "tool-calls" || unified === "error" || failureWords.test(raw)
    ? makeFailure("abnormal_end", `the answer ended abnormally: ${word}`)
    : null;
};

/**
 * Succeeds if the model answers a short text, which is no user's, in at most 2000 tokens. Fails after 30 silent
 * seconds.
 */
export const tryModel = (model: LanguageModel): Effect.Effect<void, ModelFailure> =>
  Effect.flatMap(loadAi, (ai) =>
    callModel(
      { ai, model, maxOutputTokens: 2000, idleTimeout: Duration.seconds(30) },
      [{ role: "user", content: "ping" }],
      () => Effect.void,
    ),
  );
