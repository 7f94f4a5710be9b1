/**
 * A handler for both interfaces over the memory store, with an answerer that the test controls.
 */
import { defaultSettings, generateKey, keyRecord, layerParley } from "@parley/core";
import {
  Answerer,
  ChatbotRegistry,
  type AnswerPart,
  type AnswerUnavailable,
  type KeyRecord,
} from "@parley/core/ports";
import { makeWebHandler, type WebHandlerOptions } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer, Logger, Redacted, type Stream } from "effect";
import { SecureRandom } from "effect/crypto";

export const usage = {
  provider: "test",
  model: "test",
  promptTokens: 1,
  completionTokens: 1,
  attempts: 1,
  latencyMillis: 1,
};

/** Creates a handler, an API key with all scopes, and an array that collects the handler's log lines as JSON. */
export const makeTestHandler = Effect.fnUntraced(function* (
  answer: (question: string) => Stream.Stream<AnswerPart, AnswerUnavailable>,
  options?: WebHandlerOptions,
  store: typeof layerMemory = layerMemory,
  /** Fields of the key. */
  fields: Partial<KeyRecord> = {},
) {
  const key = yield* Effect.provide(generateKey, SecureRandom.layerWebCrypto);
  const text = Redacted.value(key);
  const register = Layer.effectDiscard(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      yield* registry.create(
        {
          workspaceName: "Workspace",
          name: "Bot",
          description: "Description",
          settings: { ...defaultSettings, helloMessage: "Hello" },
          keys: [yield* keyRecord(text, fields)],
        },
        "test",
      );
    }),
  );
  const logged: Array<string> = [];
  const logger = Logger.make((entry) => {
    logged.push(Logger.formatJson.log(entry));
  });
  const layer = register.pipe(
    Layer.provideMerge(
      layerParley({
        store,
        answerer: Layer.succeed(
          Answerer,
          Answerer.of({ answer: (_, __, question) => answer(question) }),
        ),
      }),
    ),
    Layer.provideMerge(Logger.layer([logger])),
  );
  const { dispose, handler } = yield* Effect.acquireRelease(
    Effect.sync(() => makeWebHandler(layer, options)),
    ({ dispose }) => Effect.promise(dispose),
  );
  const send = (path: string, init: RequestInit = {}) =>
    Effect.promise((signal) =>
      handler(
        new Request(`http://parley.test${path}`, {
          signal,
          ...init,
          headers: { "x-api-key": text, "content-type": "application/json", ...init.headers },
        }),
      ),
    );
  return { dispose, handler, key, layer, logged, send };
});
