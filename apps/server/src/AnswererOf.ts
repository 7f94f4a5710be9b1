/**
 * Where answers come from: the configured language models, or else the documents alone.
 */
import { AnswerUnavailable, ChatbotRegistry } from "@parley/core";
import {
  layerLanguageModel,
  layerOffline,
  openAiCompatible,
  type KnowledgeSource,
} from "@parley/llm";
import { Effect, Layer, Path } from "effect";
import { fileURLToPath } from "node:url";
import { makeDocuments } from "./Documents.ts";
import { Settings } from "./Settings.ts";

/** This project's own documentation, which answers when no other documents and no model are named. */
const ownDocuments = fileURLToPath(new URL("../../../docs", import.meta.url));

/** The documents of each chatbot: of the folder that its settings name, or the usual one. */
const makeKnowledgeSource = Effect.fnUntraced(function* (usual: string | null) {
  const { knowledgeRoot } = yield* Settings;
  const path = yield* Path.Path;
  const documents = yield* makeDocuments;
  if (usual !== null) yield* documents(usual);

  const named = (name: string) =>
    knowledgeRoot === null
      ? Effect.fail(
          new Error(`a chatbot has the documents "${name}", but PARLEY_KNOWLEDGE_ROOT is not set`),
        )
      : documents(path.join(knowledgeRoot, name));

  const chatbots = yield* Effect.flatMap(ChatbotRegistry, (registry) => registry.list);
  const names = new Set(chatbots.map(({ chatbot }) => chatbot.settings.knowledge));
  for (const name of names) {
    // A mistake in one chatbot's settings must not keep the others from answering.
    if (name !== null) yield* Effect.catch(named(name), ({ message }) => Effect.logError(message));
  }

  const ofChatbot = Effect.fnUntraced(function* (name: string | null) {
    if (name !== null) return yield* named(name);
    return usual === null ? null : yield* documents(usual);
  });
  const source: KnowledgeSource = ({ settings }) =>
    Effect.mapError(
      ofChatbot(settings.knowledge),
      ({ message }) => new AnswerUnavailable({ reason: message, passing: false }),
    );
  return source;
});

export const layerAnswerer = Layer.unwrap(
  Effect.gen(function* () {
    const { contextTokens, knowledgeDir, llms } = yield* Settings;
    const [first, ...fallbacks] = llms;
    if (first === undefined) {
      return layerOffline(yield* makeKnowledgeSource(knowledgeDir ?? ownDocuments));
    }
    const models = [
      yield* openAiCompatible(first),
      ...(yield* Effect.forEach(fallbacks, openAiCompatible)),
    ] as const;
    return layerLanguageModel(models, {
      ...(contextTokens !== null && { contextTokens }),
      modelNamed: (model) => openAiCompatible({ ...first, model }),
      knowledge: yield* makeKnowledgeSource(knowledgeDir),
    });
  }),
);
