/**
 * Answers with a language model of the AI SDK.
 */
import { Answerer, type AnswerPart, AnswerUnavailable, type Chatbot } from "@parley/core";
import type { LanguageModel as AnyLanguageModel, TextStreamPart, ToolSet } from "ai";
import { Clock, Effect, Layer, Stream } from "effect";
import { makePrompt, type Prompt } from "./Prompt.ts";

/**
 * Any model object of the AI SDK, of whichever provider. Not a model's bare name: the AI SDK would
 * send the chat to its hosted gateway for that.
 */
export type LanguageModel = Exclude<AnyLanguageModel, string>;

export interface LanguageModelOptions {
  /**
   * What instructions, earlier entries and question may take together, in bytes of UTF-8
   * (default 32 000). The newest entries that fit go in whole; instructions and question always do.
   */
  readonly contextBytes?: number;
}

/**
 * An `Answerer` over one model and one call per answer: it does not retry.
 *
 * An answer that is empty, cut off (also by the model's own limit of length) or withheld fails with
 * `AnswerUnavailable`, after whatever deltas came before that was known. The provider's request is
 * aborted when the stream is interrupted or left. The AI SDK is loaded when the layer is built.
 */
export const layerLanguageModel = (
  model: LanguageModel,
  options: LanguageModelOptions = {},
): Layer.Layer<Answerer> =>
  Layer.effect(
    Answerer,
    Effect.gen(function* () {
      const { streamText } = yield* Effect.promise(() => import("ai"));
      // Its warnings go to stderr past our logger; an embedder that set a logger keeps it.
      globalThis.AI_SDK_LOG_WARNINGS ??= false;

      const start = (prompt: Prompt, abortSignal: AbortSignal) =>
        streamText({
          model,
          ...(prompt.instructions === null ? {} : { instructions: prompt.instructions }),
          messages: [...prompt.messages],
          maxRetries: 0,
          abortSignal,
          telemetry: { isEnabled: false },
          // Left out, it prints the error, the prompt included.
          onError: () => {},
        }).stream;

      const answer = (
        chatbot: Chatbot,
        earlier: Parameters<Answerer["Service"]["answer"]>[1],
        question: string,
      ) =>
        Stream.unwrap(
          Effect.gen(function* () {
            const prompt = yield* makePrompt(
              chatbot,
              earlier,
              question,
              options.contextBytes ?? 32_000,
            );
            const startedAt = yield* Clock.currentTimeMillis;
            const controller = yield* Effect.acquireRelease(
              Effect.sync(() => new AbortController()),
              (abort) => Effect.sync(() => abort.abort()),
            );
            const parts = yield* Effect.try({
              try: () => start(prompt, controller.signal),
              catch: unavailable,
            });

            let said = false;
            let finish: Extract<TextStreamPart<ToolSet>, { type: "finish" }> | undefined;

            const deltas = Stream.fromAsyncIterable(parts, unavailable).pipe(
              Stream.mapEffect(
                (part): Effect.Effect<ReadonlyArray<AnswerPart>, AnswerUnavailable> => {
                  switch (part.type) {
                    case "text-delta":
                      if (part.text === "") break;
                      said ||= part.text.trim() !== "";
                      return Effect.succeed([{ _tag: "Delta", text: part.text }]);
                    case "error":
                      return Effect.fail(unavailable(part.error));
                    case "abort":
                      return Effect.fail(
                        new AnswerUnavailable({
                          reason: "the request was aborted",
                          passing: false,
                        }),
                      );
                    case "finish":
                      finish = part;
                      break;
                  }
                  return Effect.succeed([]);
                },
              ),
              Stream.flattenIterable,
            );

            const usage = Effect.gen(function* () {
              if (finish === undefined) {
                return yield* new AnswerUnavailable({
                  reason: "the answer broke off",
                  passing: true,
                });
              }
              if (finish.finishReason !== "stop") {
                return yield* new AnswerUnavailable({
                  reason: `the answer ended abnormally: ${finish.finishReason}`,
                  passing: false,
                });
              }
              if (!said)
                return yield* new AnswerUnavailable({
                  reason: "the answer is empty",
                  passing: true,
                });
              const part: AnswerPart = {
                _tag: "Usage",
                usage: {
                  provider: model.provider,
                  model: model.modelId,
                  promptTokens: finish.totalUsage.inputTokens ?? 0,
                  completionTokens: finish.totalUsage.outputTokens ?? 0,
                  attempts: 1,
                  latencyMillis: (yield* Clock.currentTimeMillis) - startedAt,
                },
              };
              return part;
            });

            return Stream.concat(deltas, Stream.fromEffect(usage));
          }),
        );

      return Answerer.of({ answer });
    }),
  );

/**
 * Tells only names, statuses and error codes, and drops the error itself: its message, body and
 * request values may quote the chat or the API key.
 */
const unavailable = (error: unknown): AnswerUnavailable => {
  const facts: Array<string> = [];
  let status: number | undefined;
  for (let e = error, depth = 0; isRecord(e) && depth < 4; e = e["cause"], depth++) {
    if (e instanceof Error && /^\w{1,60}$/.test(e.name)) facts.push(e.name);
    if (typeof e["statusCode"] === "number") {
      status ??= e["statusCode"];
      facts.push(`HTTP ${e["statusCode"]}`);
    }
    if (typeof e["code"] === "string" && /^[A-Z][A-Z0-9_]{2,39}$/.test(e["code"])) {
      facts.push(e["code"]);
    }
  }
  return new AnswerUnavailable({
    reason: `the language model failed: ${facts.join(", ") || "an error of unknown kind"}`,
    // Without a status the network failed.
    passing: status === undefined || status === 408 || status === 429 || status >= 500,
  });
};

const isRecord = (u: unknown): u is Record<string, unknown> => typeof u === "object" && u !== null;
