/**
 * Creates the first chatbot in an empty store.
 */
import { defaultSettings, generateKey, keyRecord } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import { Effect, Redacted } from "effect";

/** Creates a chatbot and returns its key, which cannot be read again; returns `null` if the store has a chatbot. */
export const firstStart = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  if ((yield* registry.list).length > 0) return null;
  const key = yield* generateKey;
  const firstKey = yield* keyRecord(Redacted.value(key), { name: "first key" });
  return yield* registry
    .create(
      {
        workspaceName: "Default workspace",
        name: "Parley",
        description: "Answers questions from its documents.",
        settings: { ...defaultSettings, helloMessage: "Hello! What would you like to know?" },
        keys: [firstKey],
      },
      "first start",
    )
    .pipe(
      Effect.as(key),
      // Another process has created the chatbot in the meantime.
      Effect.catchTag("ChatbotTaken", () => Effect.succeed(null)),
    );
});
