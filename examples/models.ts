import { layerLanguageModel, openAiCompatible } from "@parley/llm";
import { Effect, Layer, Redacted } from "effect";

export const layerAnswers = Layer.unwrap(
  Effect.gen(function* () {
    const openAi = yield* openAiCompatible({
      provider: "openai",
      baseUrl: "https://api.openai.com/v1",
      apiKey: Redacted.make(process.env["OPENAI_API_KEY"]!),
      model: "gpt-5-mini",
    });
    const ollama = yield* openAiCompatible({
      provider: "ollama",
      baseUrl: "http://localhost:11434/v1",
      apiKey: undefined,
      model: "llama3.2",
    });
    return layerLanguageModel([openAi, ollama], { contextTokens: 16_000 });
  }),
);
