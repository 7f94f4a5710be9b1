/**
 * One call of one language model.
 */
import { isBlank, traceHeaders } from "@parley/core";
import type * as Ai from "ai";
import { Duration, Effect, Scope, Stream } from "effect";
import {
  classifyError,
  makeFailure,
  type FailureReason,
  type ModelFailure,
} from "./ModelFailure.ts";
import type { Prompt } from "./Prompt.ts";

/**
 * A model object of the AI SDK, from any provider. A model's bare name is excluded: the AI SDK would send the chat to
 * its hosted gateway.
 */
export type LanguageModel = Exclude<Ai.LanguageModel, string>;

/** A piece of the answer, or once and last, the tokens that the call took. */
export type CallPart =
  | { readonly _tag: "Delta"; readonly text: string }
  | { readonly _tag: "Tokens"; readonly prompt: number; readonly completion: number };

/** The AI SDK. Its warnings would bypass the logger and go to stderr; an embedder's own setting stays. */
export const loadAi = Effect.promise(() => {
  globalThis.AI_SDK_LOG_WARNINGS ??= false;
  return import("ai");
});

export interface CallOptions {
  readonly ai: typeof Ai;
  readonly model: LanguageModel;
  readonly maxOutputTokens: number;
  /** The longest time between two parts of the model's response, reasoning included. */
  readonly idleTimeout: Duration.Duration;
}

/**
 * Calls the model and waits for the first piece that is more than white space; the stream begins with it. A stream that
 * ends without a failure is complete, or was ended by `maxOutputTokens`. Reasoning is left out, also when the model
 * sends it as text between `<think>` tags. Closing the scope aborts the request.
 */
export const callModel = (
  { ai, idleTimeout, maxOutputTokens, model }: CallOptions,
  prompt: Prompt,
): Effect.Effect<Stream.Stream<CallPart, ModelFailure>, ModelFailure, Scope.Scope> =>
  Effect.gen(function* () {
    const controller = yield* Effect.acquireRelease(
      Effect.sync(() => new AbortController()),
      (abort) => Effect.sync(() => abort.abort()),
    );
    const headers = yield* traceHeaders;
    const source = yield* Effect.try({
      try: () =>
        ai.streamText({
          model: ai.wrapLanguageModel({
            model,
            middleware: ai.extractReasoningMiddleware({ tagName: "think" }),
          }),
          ...(prompt.system === null ? {} : { instructions: prompt.system }),
          messages: [...prompt.messages],
          headers: { ...headers },
          maxOutputTokens,
          maxRetries: 0,
          abortSignal: controller.signal,
          telemetry: { isEnabled: false },
          // Without it, the AI SDK prints the error with the prompt in it.
          onError: () => {},
        }).stream,
      catch: classifyError,
    });
    const silent = `the language model was silent for ${Duration.toMillis(idleTimeout)} ms`;
    const parts = Stream.fromReadableStream({
      evaluate: () => source,
      onError: classifyError,
      // Cancelling would wait until the provider closes the connection, which may never happen.
      releaseLockOnEnd: true,
    }).pipe(
      Stream.timeoutOrElse({
        duration: idleTimeout,
        orElse: () => Stream.fail(makeFailure("timeout", silent)),
      }),
    );
    const pull = yield* Stream.toPull(toCallParts(parts));
    const first = yield* Effect.catchTag(pull, "Done", () => Effect.die("a call without parts"));
    return Stream.concat(Stream.fromIterable(first), Stream.fromPull(Effect.succeed(pull)));
  });

type Part = Ai.TextStreamPart<Ai.ToolSet>;

const toCallParts = (
  parts: Stream.Stream<Part, ModelFailure>,
): Stream.Stream<CallPart, ModelFailure> =>
  Stream.suspend(() => {
    let hasText = false;
    let hasReasoning = false;
    let whiteSpace = "";
    let finish: Extract<Part, { type: "finish" }> | undefined;

    /** White space before the answer waits for the first piece; after reasoning it is dropped. */
    const deltas = (piece: string): ReadonlyArray<CallPart> => {
      if (piece === "") return [];
      if (hasText) return [{ _tag: "Delta", text: piece }];
      whiteSpace += piece;
      if (isBlank(whiteSpace)) return [];
      hasText = true;
      return [{ _tag: "Delta", text: hasReasoning ? whiteSpace.trimStart() : whiteSpace }];
    };
    const pieces = Stream.mapEffect(
      parts,
      (part): Effect.Effect<ReadonlyArray<CallPart>, ModelFailure> => {
        if (part.type === "error") return Effect.fail(classifyError(part.error));
        if (part.type === "text-delta") return Effect.succeed(deltas(part.text));
        if (part.type === "reasoning-start") hasReasoning = true;
        if (part.type === "finish") finish = part;
        return Effect.succeed([]);
      },
    );
    const end = Effect.suspend((): Effect.Effect<ReadonlyArray<CallPart>, ModelFailure> => {
      if (finish === undefined) return Effect.fail(cutOff);
      const { finishReason, rawFinishReason, totalUsage } = finish;
      if (finishReason !== "stop" && finishReason !== "length") {
        // The AI SDK adds a finish without a raw reason to a stream that breaks off.
        if (rawFinishReason === undefined) return Effect.fail(cutOff);
        const reason = finishReason === "content-filter" ? "content_filter" : "abnormal_end";
        return Effect.fail(makeFailure(reason, `the answer ended abnormally: ${finishReason}`));
      }
      if (!hasText) {
        const { reasoningTokens = 0 } = totalUsage.outputTokenDetails;
        const thought = hasReasoning || reasoningTokens > 0 || finishReason === "length";
        return Effect.fail(thought ? reasoningOnly : empty);
      }
      const { inputTokens: prompt = 0, outputTokens: completion = 0 } = totalUsage;
      return Effect.succeed([{ _tag: "Tokens", prompt, completion }]);
    });
    return Stream.flattenIterable(Stream.concat(pieces, Stream.fromEffect(end)));
  });

const cutOff = makeFailure("cut_off", "the answer broke off");
const empty = makeFailure("empty", "the answer is empty");
const reasoningOnly = makeFailure(
  "reasoning_only",
  "the model spent the tokens of its answer on reasoning, and said nothing",
);

const probe = { system: null, messages: [{ role: "user", content: "ping" }], tokens: 1 } as const;

/** Failures of a model that works, and has no text in a single token. */
const signsOfLife: ReadonlySet<FailureReason> = new Set<FailureReason>([
  "context_length",
  "empty",
  "output_limit",
  "reasoning_only",
]);

/**
 * Succeeds if the model answers a call of one token, or refuses it only for being so short; fails after 30 silent
 * seconds. The call carries a text of ours, never a user's.
 */
export const tryModel = (model: LanguageModel): Effect.Effect<void, ModelFailure> =>
  loadAi.pipe(
    Effect.flatMap((ai) =>
      callModel({ ai, model, maxOutputTokens: 1, idleTimeout: Duration.seconds(30) }, probe),
    ),
    Effect.scoped,
    Effect.asVoid,
    Effect.catchIf(
      ({ reason }) => signsOfLife.has(reason),
      () => Effect.void,
    ),
  );
