import { defaultSettings, keyRecord, layerParley } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import { makeWebHandler } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";

export const apiKey = process.env["API_KEY"]!; // of `pnpm --silent parley key generate`

/** Puts one chatbot and its key into the store, unless an earlier start did. */
const register = Layer.effectDiscard(
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const helpdesk = {
      workspaceName: "Acme",
      name: "Helpdesk",
      description: "",
      settings: { ...defaultSettings, helloMessage: "Hello!" },
      keys: [yield* keyRecord(apiKey)],
    };
    yield* Effect.catchTag(
      registry.create(helpdesk, "my service"),
      "ChatbotTaken",
      () => Effect.void,
    );
  }),
);

export const { dispose, handler, ready } = makeWebHandler(
  register.pipe(
    Layer.provideMerge(
      layerParley({ store: layerMemory, answerer: ({ question }) => `You asked: ${question}` }),
    ),
  ),
  { basePaths: { general: "/support/chatbot", answers: "/support/ask" } },
);

await ready; // or the process ends with what the layer failed with
