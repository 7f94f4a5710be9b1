/**
 * Answers with language models of the AI SDK.
 */
import { Answerer, AnswerUnavailable, AskLimits } from "@parley/core";
import { Cache, Duration, Effect, Layer, Scope, Stream } from "effect";
import { answerWith } from "../models/Attempts.ts";
import {
  isAbout,
  knowledgeFor,
  type Knowledge,
  type KnowledgeSource,
} from "../documents/Knowledge.ts";
import { loadAi, type LanguageModel } from "../models/ModelCall.ts";
import type { Passage } from "../documents/Passage.ts";
import { promptBuilder } from "../models/Prompt.ts";
import { makeProvider } from "../models/Provider.ts";
import { defaultRetries } from "../models/Retry.ts";

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
  /** How many calls may follow a failed one at the same provider, for one question (default 4). */
  readonly retries?: number;
  /**
   * How long a model may show no sign of life before and while it answers; then its call has failed.
   * By default it depends on the deadline of `AskLimits`: 8 seconds of 30, and 20 for the last or only model,
   * which may still be loading, or think without streaming it, and has no other behind it.
   */
  readonly idleTimeout?: Duration.Input;
}

/** The default idle timeouts, as shares of an ask's deadline: two models and a pause fit in. */
const idleShare = 8 / 30;
const idleShareOfLast = 20 / 30;

/** How many passages of the documents a prompt holds at most. */
const mostPassages = 5;

/**
 * An `Answerer` over one model or several, asked in the order given.
 *
 * A call that fails in a way that passes (network, silence, 408, 429, 5xx, an answer that is empty or breaks off) is made
 * again after a growing, jittered pause, and not before its `Retry-After`; meanwhile the next model is asked. No attempt
 * begins after the ask's deadline.
 *
 * A model whose calls fail ten times in a row is left alone for 2 to 30 s, or as long as it asks for, up to
 * an hour; then one question tries it, while the others go on without.
 *
 * A question without an answer fails with `AnswerUnavailable`; deltas may have come before. A model that withholds its
 * answer, or spends its tokens on reasoning, is not asked again. An answer that the bound of output ends is complete.
 * Reasoning that a model sends as text between `<think>` tags is left out.
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
      const ai = yield* loadAi;
      const { deadline } = yield* AskLimits;
      const {
        contextTokens = 32_000,
        knowledge = null,
        maxOutputTokens = Math.min(4096, Math.floor(contextTokens / 4)),
        modelNamed,
        retries = defaultRetries,
      } = options;
      const list = "length" in models ? models : [models];
      const providerOf = (model: LanguageModel, n: number) => {
        const share = n === list.length - 1 ? idleShareOfLast : idleShare;
        const idleTimeout = options.idleTimeout ?? Duration.times(deadline, share);
        return makeProvider({
          ai,
          model,
          maxOutputTokens,
          idleTimeout: Duration.fromInputUnsafe(idleTimeout),
        });
      };
      const usual = yield* Effect.forEach(list, providerOf);
      const scope = yield* Effect.scope;
      const named = yield* Cache.make({
        // Operators name them, so they are few.
        capacity: 1000,
        lookup: (name: string) =>
          modelNamed === undefined
            ? Effect.fail(
                new AnswerUnavailable({
                  reason: "a chatbot names a model, but none can be chosen",
                }),
              )
            : Effect.flatMap(modelNamed(name), (model) =>
                Scope.provide(providerOf(model, 0), scope),
              ),
      });

      const tokens = contextTokens - maxOutputTokens;
      return Answerer.of({
        answer: (chatbot, earlier, question) =>
          Stream.unwrap(
            Effect.gen(function* () {
              const passages = passagesFor(yield* knowledgeFor(knowledge, chatbot), question);
              const { model } = chatbot.settings;
              const providers =
                model === null ? usual : [yield* Cache.get(named, model), ...usual.slice(1)];
              const promptOf = yield* promptBuilder(
                { chatbot, question, passages },
                earlier,
                tokens,
              );
              return answerWith(providers, promptOf, tokens, retries);
            }),
          ),
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
