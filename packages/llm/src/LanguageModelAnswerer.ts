/**
 * Answers with language models of the AI SDK.
 */
import { Answerer, AnswerUnavailable, AskLimits } from "@parley/core";
import { Cache, Duration, Effect, Layer, Scope, Stream } from "effect";
import { answerFromFirst, makeTries } from "./Fallback.ts";
import { makeHistory } from "./History.ts";
import { isAbout, knowledgeFor, type Knowledge, type KnowledgeSource } from "./Knowledge.ts";
import type { LanguageModel } from "./ModelCall.ts";
import type { Passage } from "./Passage.ts";
import { makePrompt } from "./Prompt.ts";
import { makeProvider } from "./Provider.ts";
import { tokenCountFor } from "./TokenCount.ts";

export interface LanguageModelOptions {
  /** The models' window in tokens, the answer included (default 32 000). */
  readonly contextTokens?: number;
  /** The most tokens of an answer, asked of the provider (default: a quarter of the window, but no more than 4096). */
  readonly maxOutputTokens?: number;
  /** The documents to answer from; `null` (the default) for none. */
  readonly knowledge?: KnowledgeSource;
  /**
   * The model that a chatbot's settings name. It is asked in the place of the first; without this, such
   * a chatbot cannot answer.
   */
  readonly modelNamed?: (name: string) => Effect.Effect<LanguageModel>;
  /** How many calls may follow a failed one at the same provider (default 2). */
  readonly retries?: number;
  /**
   * How long a model may show no sign of life before and while it answers; then its call has failed.
   * By default it depends on the deadline of `AskLimits`: 8 seconds of 30, and 20 for the last or only model,
   * which may be being loaded, or think without streaming it, and after which nobody else is asked.
   */
  readonly silence?: Duration.Input;
}

/** The silence that is borne, as shares of an ask's deadline: two models and a pause fit in. */
const silenceOfOthers = 8 / 30;
const silenceOfLast = 20 / 30;

/** How many passages of the documents a prompt holds at most. */
const mostPassages = 5;

/**
 * An `Answerer` over one model or several, tried in the order given.
 *
 * Before the first piece of an answer, calls are retried with a growing, jittered delay where that can
 * help (network, 408, 429, 5xx), then the next model is tried. A model that asks for more time by
 * `Retry-After` is not asked this question again before, and other questions only if no other model can.
 *
 * A model whose calls fail ten times in a row is left alone for 2 to 30 s, or as long as it asks for, up to
 * an hour; then a call with a text of our own finds out whether it answers. Questions never wait for that.
 *
 * What cannot be answered, is empty, withheld or breaks off fails with `AnswerUnavailable`, after whatever
 * deltas came before that was known. An answer that the bound of output ends is a complete answer.
 *
 * The provider's request is aborted when the stream is interrupted or left. The AI SDK is loaded when
 * the layer is built. Errors, logs and metrics tell names, statuses and codes, never a text or a key.
 */
export const layerLanguageModel = (
  models: LanguageModel | readonly [LanguageModel, ...Array<LanguageModel>],
  options: LanguageModelOptions = {},
): Layer.Layer<Answerer> =>
  Layer.effect(
    Answerer,
    Effect.gen(function* () {
      const { streamText } = yield* Effect.promise(() => import("ai"));
      // Its warnings go to stderr past our logger; an embedder that set a logger keeps it.
      globalThis.AI_SDK_LOG_WARNINGS ??= false;

      const { deadline } = yield* AskLimits;
      const {
        contextTokens = 32_000,
        knowledge = null,
        maxOutputTokens = Math.min(4096, Math.floor(contextTokens / 4)),
        modelNamed,
      } = options;
      const list = "length" in models ? models : [models];
      const candidate = (model: LanguageModel, n: number) =>
        Effect.all({
          provider: makeProvider({
            streamText,
            model,
            maxOutputTokens,
            silence: Duration.fromInputUnsafe(
              options.silence ??
                Duration.times(deadline, n === list.length - 1 ? silenceOfLast : silenceOfOthers),
            ),
            retries: options.retries ?? 2,
          }),
          // Tables of some megabytes: loaded when a prompt first needs them.
          counter: Effect.cached(tokenCountFor(model.modelId)),
        });
      const usual = yield* Effect.forEach(list, candidate);
      const scope = yield* Effect.scope;
      const named = yield* Cache.make({
        // Operators name them, so they are few.
        capacity: 1000,
        lookup: (name: string) =>
          modelNamed === undefined
            ? Effect.fail(
                new AnswerUnavailable({
                  reason: "a chatbot names a model, but none can be chosen",
                  passing: false,
                }),
              )
            : Effect.flatMap(modelNamed(name), (model) =>
                Scope.provide(candidate(model, 0), scope),
              ),
      });

      return Answerer.of({
        answer: (chatbot, earlier, question) => {
          const tries = makeTries();
          return Stream.unwrap(
            Effect.gen(function* () {
              const history = yield* makeHistory(earlier);
              const passages = passagesFor(yield* knowledgeFor(knowledge, chatbot), question);
              const { model } = chatbot.settings;
              const providers =
                model === null ? usual : [yield* Cache.get(named, model), ...usual.slice(1)];
              const parts = { chatbot, history, question, passages };
              return answerFromFirst(
                providers.map(({ counter, provider }) => ({
                  provider,
                  promptOf: (share) =>
                    makePrompt(parts, (contextTokens - maxOutputTokens) * share, counter),
                })),
                tries,
              );
            }),
          );
        },
      });
    }),
  );

const passagesFor = (
  knowledge: Knowledge | null,
  question: string,
): ReadonlyArray<Passage> | null => {
  if (knowledge === null || knowledge.passages === 0) return null;
  const matches = knowledge.search(question, mostPassages);
  return matches[0] !== undefined && isAbout(matches[0])
    ? matches.map(({ passage }) => passage)
    : [];
};
