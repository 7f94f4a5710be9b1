import { layerParley } from "@parley/core";
import { layerLanguageModel, openAiCompatible } from "@parley/llm";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";

const model = openAiCompatible({
  baseUrl: "http://localhost:11434/v1",
  apiKey: undefined,
  model: "my-model",
});

export const services = layerParley({
  store: layerPostgres({ url: Redacted.make(process.env["DATABASE_URL"]!) }),
  answerer: Layer.unwrap(Effect.map(model, (loaded) => layerLanguageModel(loaded))),
});
