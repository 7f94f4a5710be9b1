/**
 * The answerer of the settings: language models, or else the documents alone.
 */
import { AnswerUnavailable } from "@parley/core";
import {
  layerLanguageModel,
  layerOffline,
  openAiCompatible,
  type KnowledgeSource,
} from "@parley/llm";
import { Effect, Layer } from "effect";
import { Settings } from "../Settings.ts";
import { Documents } from "./Documents.ts";

export const layerAnswerer = Layer.unwrap(
  Effect.gen(function* () {
    const { contextTokens, llms } = yield* Settings;
    const documents = yield* Documents;
    const knowledge: KnowledgeSource = ({ settings }) =>
      Effect.mapError(
        documents.named(settings.knowledge),
        ({ message }) => new AnswerUnavailable({ reason: message }),
      );
    const [first, ...fallbacks] = llms;
    if (first === undefined) return layerOffline(knowledge);
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
