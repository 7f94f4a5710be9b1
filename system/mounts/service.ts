/**
 * The handler that every program in this folder mounts, with the memory store. Its answerer fetches the second half of
 * each answer from the test, at `GATE`.
 */
import { defaultSettings, keyRecord, layerParley } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import { makeWebHandler } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import process from "node:process";

const { GATE: gate, KEY: key } = process.env;

const register = Layer.effectDiscard(
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const helpdesk = {
      workspaceName: "Acme",
      name: "Helpdesk",
      description: "",
      settings: { ...defaultSettings, helloMessage: "Hello!" },
      keys: [yield* keyRecord(key!, { scopes: ["read", "write", "ask", "delete"] })],
    };
    yield* registry.create(helpdesk, "test");
  }),
);

const services = layerParley({
  store: layerMemory,
  answerer: async function* ({ question, signal }) {
    yield "one ";
    const half = await fetch(`${gate}/${encodeURIComponent(question)}`, { signal });
    yield await half.text();
  },
});

export const { handler, ready } = makeWebHandler(Layer.provideMerge(register, services), {
  basePaths: { general: "/support/chatbot", answers: "/support/ask" },
});

await ready;

/** Prints the server's address for the test. */
export const announce = (address: unknown): void => {
  console.log(`http://127.0.0.1:${(address as { readonly port: number }).port}`);
};
