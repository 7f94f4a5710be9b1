/**
 * A single call to a language model.
 */
import { Clock, type Context, Deferred, Duration, Effect } from "effect";
import { classifyError, cutOff, makeFailure, ModelFailure, type Tokens } from "./ModelFailure.ts";
import type { Message } from "./Prompt.ts";
import { makeReasoningFilter } from "./Reasoning.ts";
import { traceHeaders } from "./TraceHeaders.ts";

/** A language model, for example a model object of the AI SDK 5, 6 or 7 from any provider. */
export interface LanguageModel {
  readonly provider: string;
  readonly modelId: string;
  /** `context` is that of the fiber of the ask; a model of the AI SDK ignores it. */
  readonly doStream: (
    call: any,
    context?: Context.Context<never>,
  ) => PromiseLike<{
    readonly stream: {
      readonly getReader: () => {
        readonly read: () => Promise<{ readonly done?: boolean; readonly value?: any }>;
      };
    };
  }>;
}

/** The default limit on an answer's tokens, for a context window of this size. */
export const maxOutputTokensOf = (contextTokens: number): number =>
  Math.min(4096, Math.floor(contextTokens / 4));

export interface CallOptions {
  readonly model: LanguageModel;
  readonly maxOutputTokens: number;
  /** The maximum time to wait for each part of the model's response, including the first and any reasoning. */
  readonly idleTimeout: Duration.Duration;
}

/** How long a response may go on after its finish reason, for the usage; some servers never close the connection. */
const graceMillis = 750;

/**
 * Calls the model and emits the deltas of its answer, without leading white space and reasoning. The call succeeds if
 * the answer is not empty and is either complete or cut short by `maxOutputTokens`. Interrupting the call aborts the
 * request.
 *
 * @param emit may return a promise, which delays the next delta
 */
export const callModel = (
  { idleTimeout, maxOutputTokens, model }: CallOptions,
  messages: ReadonlyArray<Message>,
  emit: (text: string) => unknown,
): Effect.Effect<Report, ModelFailure> =>
  Effect.gen(function* () {
    const request = new AbortController();
    const abortSignal = request.signal;
    const headers = yield* traceHeaders;
    const clock = yield* Clock.Clock;
    const context = yield* Effect.context<never>();
    const isFromChat = (text: string) =>
      messages.some(({ content, role }) => role !== "system" && content.includes(text));
    const filterReasoning = makeReasoningFilter();
    /** The time at which the current wait for the model began; `null` while the call waits for `emit`. */
    let silentSince: number | null = clock.currentTimeMillisUnsafe();
    let hasText = false;
    let hasEnded = false;
    let finish: Finish | undefined;
    const finished = Deferred.makeUnsafe<void>();
    const tokens = { prompt: 0, completion: 0 };
    const notes: Array<string> = [];
    const show = async (delta: string | null): Promise<void> => {
      const text = filterReasoning(delta);
      if (text === "") return;
      hasText = true;
      silentSince = null;
      await emit(text);
    };
    const read = async (): Promise<void> => {
      const prompt = messages.map((message) =>
        message.role === "system"
          ? { role: message.role, content: message.content }
          : { role: message.role, content: [{ type: "text", text: message.content }] },
      );
      const call = { prompt, headers, maxOutputTokens, abortSignal };
      const { stream } = await model.doStream(call, context);
      // The stream is never cancelled: cancelling waits until the provider closes the connection, which may never
      // happen.
      const reader = stream.getReader();
      silentSince = clock.currentTimeMillisUnsafe();
      while (true) {
        const { done, value: part } = await reader.read();
        if (abortSignal.aborted) return;
        if (done) break;
        if (part.type === "error") throw part.error;
        if (part.type === "note") notes.push(part.note);
        if (part.type === "text-delta") await show(part.delta);
        const { inputTokens, outputTokens } = part.usage ?? {};
        tokens.prompt = countOf(inputTokens) ?? tokens.prompt;
        tokens.completion = countOf(outputTokens) ?? tokens.completion;
        if (part.type === "finish") {
          finish = part.finishReason;
          Deferred.doneUnsafe(finished, Effect.void);
        } else if (finish !== undefined && part.type !== "text-delta") continue;
        silentSince = clock.currentTimeMillisUnsafe();
      }
      hasEnded = true;
      await show(null);
    };
    const silence = (millis: number): Effect.Effect<void> =>
      Effect.suspend(() => {
        const now = clock.currentTimeMillisUnsafe();
        const remainder = (silentSince ?? now) + millis - now;
        return remainder > 0
          ? Effect.andThen(Effect.sleep(remainder), silence(millis))
          : Effect.void;
      });
    const idleMillis = Duration.toMillis(idleTimeout);
    const timeout = makeFailure("timeout", `no response for ${idleMillis} ms`);
    return yield* Effect.raceAllFirst([
      Effect.tryPromise({ try: read, catch: (error) => classifyError(error, isFromChat) }),
      Effect.andThen(
        silence(idleMillis),
        Effect.suspend(() => (finish === undefined ? Effect.fail(timeout) : Effect.void)),
      ),
      Effect.andThen(Deferred.await(finished), silence(Math.min(graceMillis, idleMillis))).pipe(
        Effect.andThen(Effect.promise(() => show(null))),
      ),
    ]).pipe(
      // Not after a whole response, because aborting would then be the most expensive step of the call.
      Effect.onExit(() => Effect.sync(() => hasEnded || request.abort())),
      Effect.flatMap(() => {
        const failure = failureOf(finish, hasText);
        return failure === null
          ? Effect.succeed({ ...tokens, finish: wordOf(finish) })
          : Effect.fail(failure);
      }),
      // Providers also bill failed calls.
      Effect.mapError(({ detail, reason, retryAfterMillis }) => {
        const hasTokens = tokens.prompt + tokens.completion > 0;
        return new ModelFailure({ reason, detail, retryAfterMillis, ...(hasTokens && { tokens }) });
      }),
      Effect.ensuring(
        Effect.forEach(notes, (note) =>
          Effect.logInfo(`The endpoint of ${model.modelId} is remembered: ${note}`),
        ),
      ),
    );
  });

/** What a successful call reports. */
export interface Report extends Tokens {
  /** The reason that the model gives for the end of its answer. */
  readonly finish: string;
}

/** The number of tokens in a usage report of the AI SDK, whose form depends on its version. */
const countOf = (u: any): number | undefined => {
  const count = u?.total ?? u;
  return typeof count === "number" ? count : undefined;
};

/** A finish reason of our own reader, or of the AI SDK, whose form depends on its version. */
type Finish = string | { readonly raw?: string | undefined; readonly unified: string } | undefined;

/** The word to log. The provider is free to choose the reason, and a long one may quote the chat. */
const wordOf = (finish: Finish): string => {
  const { raw, unified } = typeof finish === "object" ? finish : { raw: finish, unified: "other" };
  return raw !== undefined && /^[\w-]{1,40}$/.test(raw) ? raw : unified;
};

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
const failureOf = (finish: Finish, hasText: boolean): ModelFailure | null => {
  const word = wordOf(finish);
  const text = typeof finish === "object" ? `${finish.unified} ${finish.raw ?? ""}` : `${finish}`;
  if (filterWords.test(text)) {
    return makeFailure("content_filter", `a content filter stopped the answer: ${word}`);
  }
  // When a stream breaks off, an adapter of the AI SDK adds a finish part without a raw reason.
  if (finish === undefined || text === "other ") return cutOff;
  if (failureWords.test(text)) {
    return makeFailure("abnormal_end", `the answer ended abnormally: ${word}`);
  }
  return hasText ? null : /max|length/i.test(text) ? reasoningOnly : empty;
};

/** The form of a real question, with words of its own: instructions, a document, a hello message, a chat. */
const trial: ReadonlyArray<Message> = [
  {
    role: "system",
    content:
      "Answer briefly.\n\n[Source: trial.md > Trial]\nThe answer to ping is pong.\n\nHello! How can I help?",
  },
  { role: "user", content: "ping" },
  { role: "assistant", content: "pong" },
  { role: "user", content: "ping" },
];

/**
 * Asks the model a test question of its own, in the form in which `layerLanguageModel` asks, and returns the answer.
 * Fails if the model is silent for 30 seconds.
 */
export const tryModel = Effect.fnUntraced(function* (model: LanguageModel, contextTokens = 32_000) {
  let answer = "";
  const idleTimeout = Duration.seconds(30);
  const options = { model, idleTimeout, maxOutputTokens: maxOutputTokensOf(contextTokens) };
  const report = yield* callModel(options, trial, (text) => {
    answer += text;
  });
  return { ...report, answer };
});
