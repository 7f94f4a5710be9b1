/**
 * What an empty store gets, so that a newcomer can talk to a chatbot at once.
 */
import { ChatbotRegistry, generateKey, hashKey, keyId, scopes } from "@parley/core";
import { Effect, Option, Redacted } from "effect";
import { defaultModerationErrorMessage } from "./Provision.ts";

/** The key of the first chatbot, or none when there are chatbots already. It is never shown again. */
export const firstStart = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  if ((yield* registry.list).length > 0) return Option.none<Redacted.Redacted>();
  const key = yield* generateKey;
  const text = Redacted.value(key);
  yield* registry.save(
    {
      workspaceName: "Default workspace",
      name: "Parley",
      description: "Answers questions from its documents.",
      settings: {
        helloMessage: "Hello! What would you like to know?",
        moderationErrorMessage: defaultModerationErrorMessage,
        instructions: null,
      },
      keys: [
        {
          id: keyId(text)!,
          hash: yield* hashKey(text),
          name: "first key",
          scopes,
          expiresAt: null,
        },
      ],
    },
    "first start",
  );
  return Option.some(key);
});
