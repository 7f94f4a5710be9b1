/**
 * Where answers come from: the configured language model, or else the documents alone.
 */
import { layerLanguageModel, layerOffline, openAiCompatible, readKnowledge } from "@parley/llm";
import { Effect, Layer } from "effect";
import { fileURLToPath } from "node:url";
import { Settings } from "./Settings.ts";

/** This project's own documentation, which answers when no other documents are named. */
const ownDocuments = fileURLToPath(new URL("../../../docs", import.meta.url));

export const layerAnswerer = Layer.unwrap(
  Effect.gen(function* () {
    const { knowledgeDir, llm } = yield* Settings;
    if (llm !== null) return layerLanguageModel(yield* openAiCompatible(llm));
    return layerOffline(yield* readKnowledge(knowledgeDir ?? ownDocuments));
  }),
);
