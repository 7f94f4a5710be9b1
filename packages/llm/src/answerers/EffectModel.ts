/**
 * Answers questions with Effect's own `LanguageModel`.
 */
import type { Answerer } from "@parley/core/ports";
import { Cause, Context, Duration, Effect, Layer, Option, Stream } from "effect";
import {
  AiError,
  LanguageModel as EffectModel,
  Model,
  Prompt,
  type Response,
  type Tool,
  type Toolkit,
} from "effect/ai";
import type { LanguageModel } from "../models/ModelCall.ts";
import { type FailureReason, ModelFailure } from "../models/ModelFailure.ts";
import { layerLanguageModel, type LanguageModelOptions } from "./LanguageModelAnswerer.ts";

type Tools = Record<string, Tool.Any>;

/** What a model from `effect/ai` and its tools need. */
export type EffectModelServices<T extends Tools> =
  | EffectModel.LanguageModel
  | Tool.HandlersFor<T>
  | Tool.HandlerServices<T[keyof T]>;

/** The last round's model must answer; with tools, it would call them again and again. */
const maxRounds = 8;

/**
 * Returns the `LanguageModel` in the context as a model for `layerLanguageModel`, for example to fall back from one to
 * another. The handlers of its tools run in the fiber of the ask, so they find it in `CurrentAsk`. A tool that fails
 * fails the call, unless its `failureMode` is `return`; a call that is retried runs its tools again.
 */
export const effectLanguageModel = <T extends Tools = {}>(
  toolkit?: Toolkit.Toolkit<T>,
): Effect.Effect<LanguageModel, never, EffectModelServices<T>> =>
  Effect.gen(function* () {
    const services = yield* Effect.context<EffectModelServices<T>>();
    const model = Context.get(services, EffectModel.LanguageModel);
    const nameOf = (name: Context.Key<any, string>) =>
      Option.getOrElse(Context.getOption(services, name), () => "effect");
    /** Streams the parts of a round and, if the model has called tools, those of the next. */
    const rounds = (
      prompt: Prompt.Prompt,
      round = 1,
      usage = { inputTokens: 0, outputTokens: 0 },
    ): Stream.Stream<object, unknown> => {
      const parts: Array<Response.StreamPart<any>> = [];
      const choice = round === maxRounds && { toolChoice: "none" as const };
      const tools = { toolkit, ...choice };
      const request: { readonly prompt: Prompt.Prompt } = { prompt, ...tools };
      const stream: Stream.Stream<Response.StreamPart<any>, unknown> = model.streamText(request);
      const end = Stream.suspend(() => {
        const finish = parts.find(({ type }) => type === "finish");
        // Without this part, the answer was cut off.
        if (finish?.type !== "finish") return Stream.empty;
        usage.inputTokens += finish.usage.inputTokens.total ?? 0;
        usage.outputTokens += finish.usage.outputTokens.total ?? 0;
        const hasResult = parts.some(
          (part) => part.type === "tool-result" && !part.providerExecuted,
        );
        if (!hasResult || round === maxRounds)
          return Stream.make({ type: "finish", finishReason: finish.reason, usage });
        const hasText = parts.some(({ type }) => type === "text-delta");
        return Stream.concat(
          Stream.make(
            { type: "usage", usage },
            { type: "text-delta", delta: hasText ? "\n\n" : "" },
          ),
          rounds(Prompt.concat(prompt, Prompt.fromResponseParts(parts)), round + 1, usage),
        );
      });
      return stream.pipe(
        Stream.tap((part) => Effect.sync(() => parts.push(part))),
        Stream.filter(({ type }) => type !== "finish"),
        Stream.concat(end),
      );
    };
    return {
      provider: nameOf(Model.ProviderName),
      modelId: nameOf(Model.ModelName),
      doStream: async ({ abortSignal, prompt }, asker) => {
        const context = Context.merge(services, asker ?? Context.empty());
        const stream = Stream.catchCause(rounds(Prompt.make(prompt)), toFailure);
        const parts = Stream.toAsyncIterableWith(stream, context as Context.Context<never>);
        const iterator = parts[Symbol.asyncIterator]();
        abortSignal.addEventListener("abort", () => void iterator.return?.().catch(() => {}));
        return { stream: { getReader: () => ({ read: () => iterator.next() }) } };
      },
    };
  });

/**
 * Provides an `Answerer` that calls the `LanguageModel` in the context, of any provider package of Effect's, or of your
 * own. Retries, timeouts, instructions and documents are those of `layerLanguageModel`. The package of the provider
 * limits an answer's tokens; `maxOutputTokens` only reserves room for them.
 */
export const layerEffectLanguageModel = <T extends Tools = {}>({
  toolkit,
  ...options
}: LanguageModelOptions & {
  /** Tools that the model may call, whose results it gets before it answers. */
  readonly toolkit?: Toolkit.Toolkit<T>;
} = {}): Layer.Layer<Answerer, never, EffectModelServices<T>> =>
  Layer.unwrap(
    Effect.map(effectLanguageModel(toolkit), (model) => layerLanguageModel(model, options)),
  );

const reasons: Readonly<Record<string, FailureReason>> = {
  NetworkError: "network",
  RateLimitError: "rate_limit",
  QuotaExhaustedError: "quota",
  AuthenticationError: "client_error",
  ContentPolicyError: "content_filter",
  InvalidRequestError: "bad_request",
  InternalProviderError: "server_error",
};

/** An error's message may quote the chat, so its tag has to do. */
const toFailure = (cause: Cause.Cause<unknown>): Stream.Stream<never, ModelFailure> => {
  const error = Cause.squash(cause);
  if (!AiError.isAiError(error)) {
    const { _tag, name } = error as { readonly _tag?: string; readonly name?: string };
    return Stream.fail(
      new ModelFailure({ reason: "abnormal_end", detail: `a tool failed: ${_tag ?? name}` }),
    );
  }
  const { isRetryable, reason, retryAfter } = error;
  const status = (reason as { http?: { response?: { status?: number } } }).http?.response?.status;
  return Stream.fail(
    new ModelFailure({
      reason: reasons[reason._tag] ?? (isRetryable ? "cut_off" : "abnormal_end"),
      detail: [reason._tag, ...(status === undefined ? [] : [`HTTP ${status}`])].join(", "),
      retryAfterMillis: retryAfter && Duration.toMillis(retryAfter),
    }),
  );
};
