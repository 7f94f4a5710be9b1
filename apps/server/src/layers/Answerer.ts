/**
 * The answerer of the settings: language models, or else the documents alone.
 */
import type { Chatbot } from "@parley/core";
import { layerLanguageModel, layerOffline, openAiCompatible } from "@parley/llm";
import { Effect, Layer } from "effect";
import { Settings } from "../Settings.ts";
import { Documents } from "./Documents.ts";

const hint = "PARLEY_LLM_BASE_URL and PARLEY_LLM_MODEL turn a language model on.";

export const layerAnswerer = Layer.unwrap(
  Effect.gen(function* () {
    const { contextTokens, llms } = yield* Settings;
    const { named } = yield* Documents;
    const knowledge = ({ settings }: Chatbot) => named(settings.knowledge);
    const [first, ...fallbacks] = llms;
    if (first === undefined) return layerOffline(knowledge, hint);
    const models = [
      yield* openAiCompatible(first),
      ...(yield* Effect.forEach(fallbacks, openAiCompatible)),
    ] as const;
    return layerLanguageModel(models, {
      contextTokens,
      modelNamed: (model) => Effect.orDie(openAiCompatible({ ...first, model })),
      knowledge,
    });
  }),
);
