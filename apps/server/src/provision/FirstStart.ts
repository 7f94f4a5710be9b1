/**
 * Creates the first chatbot in an empty store.
 */
import { Administration, generateKey, keyRecord } from "@parley/core";
import { Effect, Redacted } from "effect";

/** Creates a chatbot and returns its key, which cannot be read again; returns `null` if the store has a chatbot. */
export const firstStart = Effect.gen(function* () {
  const administration = yield* Administration;
  if ((yield* administration.chatbots).length > 0) return null;
  const key = yield* generateKey;
  const firstKey = yield* keyRecord(Redacted.value(key), { name: "first key" });
  return yield* administration
    .createChatbot(
      {
        workspaceName: "Default workspace",
        name: "Parley",
        description: "Answers questions from its documents.",
        settings: { helloMessage: "Hello! What would you like to know?" },
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
