import { Access, Asking, Chats } from "@parley/core";
import { Moderator } from "@parley/core/ports";
import { layerLanguageModel, openAiCompatible } from "@parley/llm";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";
import { Digest } from "effect/crypto";

const model = openAiCompatible({
  baseUrl: "http://localhost:11434/v1",
  apiKey: undefined,
  model: "my-model",
});

export const layerParley = Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
  Layer.provide([
    layerPostgres({ url: Redacted.make(process.env["DATABASE_URL"]!) }),
    Layer.unwrap(Effect.map(model, (loaded) => layerLanguageModel(loaded))),
    Moderator.layerOff,
    Digest.layerWebCrypto,
  ]),
);
