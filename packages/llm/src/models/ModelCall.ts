/**
 * A single call to a language model.
 */
import type * as Ai from "ai";
import { Clock, Duration, Effect } from "effect";
import { classifyError, cutOff, makeFailure, ModelFailure, type Tokens } from "./ModelFailure.ts";
import type { Message } from "./Prompt.ts";
import { traceHeaders } from "./TraceHeaders.ts";

/**
 * A model object of the AI SDK, from any provider. Plain model names are excluded, because the AI SDK would send the
 * chat to its hosted gateway.
 */
export type LanguageModel = Exclude<Ai.LanguageModel, string>;

/**
 * Handles a failed import of an optional package. Without a handler directly after the import, esbuild fails to bundle
 * a program in which the package is not installed.
 */
export const rethrow = (error: unknown): never => {
  throw error;
};

export const loadAi = Effect.promise(() => import("ai").catch(rethrow));

export interface CallOptions {
  readonly ai: typeof Ai;
  readonly model: LanguageModel;
  readonly maxOutputTokens: number;
  /** The maximum time to wait for each part of the model's response, including the first and any reasoning. */
  readonly idleTimeout: Duration.Duration;
}

/**
 * Calls the model and emits the deltas of its answer, without leading white space. Reasoning is left out, even when the
 * model sends it as text between `<think>` tags. The call succeeds if the answer is not empty and is either complete or
 * cut short by `maxOutputTokens`. Interrupting the call aborts the request.
 *
 * @param emit may return a promise, which delays the next delta
 */
export const callModel = (
  { ai, idleTimeout, maxOutputTokens, model }: CallOptions,
  messages: ReadonlyArray<Message>,
  emit: (text: string) => unknown,
): Effect.Effect<Tokens, ModelFailure> =>
  Effect.gen(function* () {
    const request = new AbortController();
    const abortSignal = request.signal;
    const headers = yield* traceHeaders;
    const clock = yield* Clock.Clock;
    const middleware = ai.extractReasoningMiddleware({ tagName: "think" });
    /** The time at which the current wait for the model began; `null` while the call waits for `emit`. */
    let silentSince: number | null = clock.currentTimeMillisUnsafe();
    let hasText = false;
    let finish: Finish | undefined;
    const read = async (): Promise<void> => {
      const { stream } = await ai.wrapLanguageModel({ model, middleware }).doStream({
        prompt: messages.map((message) =>
          message.role === "system"
            ? { role: message.role, content: message.content }
            : { role: message.role, content: [{ type: "text", text: message.content }] },
        ),
        headers,
        maxOutputTokens,
        abortSignal,
      });
      // The stream is never cancelled: cancelling waits until the provider closes the connection, which may never
      // happen.
      const reader = stream.getReader();
      while (true) {
        silentSince = clock.currentTimeMillisUnsafe();
        const { done, value: part } = await reader.read();
        if (done || abortSignal.aborted) return;
        if (part.type === "error") throw part.error;
        if (part.type === "finish") finish = part;
        if (part.type !== "text-delta") continue;
        const text = hasText ? part.delta : part.delta.replace(/^\p{White_Space}+/u, "");
        if (text === "") continue;
        hasText = true;
        silentSince = null;
        await emit(text);
      }
    };
    const silence: Effect.Effect<never, ModelFailure> = Effect.suspend(() => {
      const millis = Duration.toMillis(idleTimeout);
      const now = clock.currentTimeMillisUnsafe();
      const remainder = (silentSince ?? now) + millis - now;
      if (remainder > 0) return Effect.andThen(Effect.sleep(remainder), silence);
      return Effect.fail(makeFailure("timeout", `no response for ${millis} ms`));
    });
    return yield* Effect.raceFirst(
      Effect.tryPromise({ try: read, catch: classifyError }),
      silence,
    ).pipe(
      // Not after a success, because aborting would then be the most expensive step of the call.
      Effect.onError(() => Effect.sync(() => request.abort())),
      Effect.flatMap(() => {
        if (finish === undefined) return Effect.fail(cutOff);
        const failure = failureOf(finish) ?? (hasText ? null : emptyAnswer(finish));
        return failure === null ? Effect.succeed(tokensOf(finish)) : Effect.fail(failure);
      }),
      // Providers also bill failed calls.
      Effect.mapError((failure) => {
        if (finish === undefined) return failure;
        const { detail, reason, retryAfterMillis } = failure;
        return new ModelFailure({ reason, detail, retryAfterMillis, tokens: tokensOf(finish) });
      }),
    );
  });

const tokensOf = ({ usage: { inputTokens, outputTokens } }: Finish): Tokens => ({
  prompt: inputTokens.total ?? 0,
  completion: outputTokens.total ?? 0,
});

interface Finish {
  readonly finishReason: { readonly raw: string | undefined; readonly unified: string };
  readonly providerMetadata?: Readonly<Record<string, { readonly [name: string]: unknown }>>;
  readonly usage: Readonly<
    Record<"inputTokens" | "outputTokens", { readonly total: number | undefined }>
  >;
}

const emptyAnswer = ({ finishReason: { raw, unified } }: Finish) =>
  unified === "length" || /max|length/i.test(`${raw}`) ? reasoningOnly : empty;
const empty = makeFailure("empty", "the answer is empty");
const reasoningOnly = makeFailure(
  "reasoning_only",
  "the model used up its entire output token limit on reasoning",
);

/** Words in finish reasons that report a content filter. */
const filterWords =
  /filter|safety|unsafe|recitation|prohibited|block(ed|list)|spii|refus|sensitive|guardrail|toxic|moderat|violation|malicious|harm/i;
/** Words in finish reasons that report another failure, or an answer that waits for the result of a tool. */
const failureWords =
  /error|abort|cancel|fail|interrupt|insufficient|malformed|invalid|time_?(out|limit)|overload|unavailable|kill|crash|exception|reject|tool|function|^language$/i;

/** Returns the failure that a finish reason reports; `null` for a usable answer. An unknown reason is not a failure. */
const failureOf = ({ finishReason: { raw, unified }, providerMetadata }: Finish) => {
  // The provider is free to choose the raw reason, and a long one may quote the chat.
  const word = raw !== undefined && /^[\w-]{1,40}$/.test(raw) ? raw : unified;
  if (unified === "content-filter" || filterWords.test(`${raw}`)) {
    return makeFailure("content_filter", `a content filter stopped the answer: ${word}`);
  }
  if (unified === "stop" || unified === "length") return null;
  // When a stream breaks off, an adapter of the AI SDK adds a finish part without a raw reason.
  if (raw === undefined || providerMetadata?.["parley"]?.["isOpen"] === true) return cutOff;
  return unified === "tool-calls" || unified === "error" || failureWords.test(raw)
    ? makeFailure("abnormal_end", `the answer ended abnormally: ${word}`)
    : null;
};

/**
 * Succeeds if the model answers a fixed test message in at most 2000 tokens. Fails if the model is silent for 30
 * seconds.
 */
export const tryModel = (model: LanguageModel): Effect.Effect<void, ModelFailure> =>
  Effect.flatMap(loadAi, (ai) =>
    callModel(
      { ai, model, maxOutputTokens: 2000, idleTimeout: Duration.seconds(30) },
      [{ role: "user", content: "ping" }],
      () => undefined,
    ),
  );
