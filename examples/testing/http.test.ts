import { defaultSettings, generateKey, keyRecord, layerParley } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import { makeWebHandler } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import { afterAll, expect, it } from "vitest";

// Every run has the same bytes, and so the same key.
const seeded = Layer.succeed(
  SecureRandom.SecureRandom,
  SecureRandom.make((size) => Uint8Array.from({ length: size }, (_, n) => (n * 7) % 248)),
);
const key = Redacted.value(Effect.runSync(Effect.provide(generateKey, seeded)));

const register = Layer.effectDiscard(
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const keys = [yield* keyRecord(key)];
    yield* registry.create(
      { workspaceName: "Acme", name: "Helpdesk", description: "", settings: defaultSettings, keys },
      "test",
    );
  }),
);

const { dispose, handler } = makeWebHandler(
  register.pipe(
    Layer.provideMerge(
      layerParley({
        store: layerMemory,
        answerer: async function* () {
          yield "We ";
          yield "do.";
        },
      }),
    ),
  ),
);
afterAll(dispose);

it("the handler answers an ask without a socket", async () => {
  const response = await handler(
    new Request("http://localhost/ask", {
      method: "POST",
      headers: { "x-api-key": key, "content-type": "application/json" },
      body: JSON.stringify({ query: "Do you deliver on Sundays?" }),
    }),
  );
  expect(response.status).toBe(201);
  expect(await response.json()).toMatchObject({ data: { id: 1, chat_id: 1, answer: "We do." } });
});
