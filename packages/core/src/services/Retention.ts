/**
 * Erases the chats that had no entry for as many days as their chatbot's `retentionDays` say.
 */
import { Clock, Effect, Layer, Schedule } from "effect";
import { ChatArchive } from "../ports/ChatArchive.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";

const day = 86_400_000;

/** Logs every failure, defects included. The next run erases the chats that are left. */
const logged = (message: string) => Effect.catchCause((cause) => Effect.logError(message, cause));

const eraseOutdated = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  for (const { chatbot } of yield* registry.list) {
    const days = chatbot.settings.retentionDays;
    if (days === null) continue;
    const limit = new Date((yield* Clock.currentTimeMillis) - days * day);
    yield* archive
      .erase(chatbot.id, { _tag: "IdleSince", limit }, "retention")
      .pipe(logged(`Outdated chats of the chatbot ${chatbot.id} could not be erased`));
  }
});

/**
 * Erases outdated chats a minute after the start and then about once an hour, as the actor `retention`. Several
 * processes may do so.
 */
export const layerRetention: Layer.Layer<never, never, ChatArchive | ChatbotRegistry> =
  Layer.effectDiscard(
    eraseOutdated.pipe(
      logged("The erasure of outdated chats failed"),
      Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.delay("1 minute"),
      Effect.forkScoped,
    ),
  );
