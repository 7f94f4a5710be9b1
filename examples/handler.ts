import {
  Access,
  Asking,
  ChatbotRegistry,
  Chats,
  defaultSettings,
  keyRecord,
  Moderator,
} from "@parley/core";
import { makeWebHandler } from "@parley/http";
import { layerScripted } from "@parley/llm";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { Digest } from "effect/crypto";

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
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer, register).pipe(
    Layer.provide([
      layerMemory,
      layerScripted(({ question }) => [`You asked: ${question}`]),
      Moderator.layerOff,
      Digest.layerWebCrypto,
    ]),
  ),
  { basePaths: { general: "/support/chatbot", answers: "/support/ask" } },
);

await ready; // or the process ends with what the layer failed with
