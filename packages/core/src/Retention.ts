/**
 * Erasing the chats that a chatbot's settings keep for so many days only.
 */
import { Clock, Effect, Layer, Schedule } from "effect";
import { ChatArchive } from "./ChatArchive.ts";
import { ChatbotRegistry } from "./ChatbotRegistry.ts";

const day = 86_400_000;

/** Erases, of every chatbot with a retention, the chats without an entry since then; gives how many. */
export const eraseOutdated = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  const now = yield* Clock.currentTimeMillis;
  let erased = 0;
  for (const { chatbot } of yield* registry.list) {
    const { retentionDays } = chatbot.settings;
    if (retentionDays === null) continue;
    const limit = new Date(now - retentionDays * day);
    erased += yield* archive.erase(chatbot.id, { _tag: "IdleSince", limit });
  }
  if (erased > 0)
    yield* Effect.logInfo(`${erased} chats were erased, as their chatbots' settings say`);
  return erased;
});

/**
 * Does so once an hour, for the first time after a minute. Several processes may; a failure is logged,
 * and the next time makes up for it.
 */
export const layerRetention: Layer.Layer<never, never, ChatArchive | ChatbotRegistry> =
  Layer.effectDiscard(
    eraseOutdated.pipe(
      Effect.catch((error) => Effect.logError("Outdated chats could not be erased", error)),
      Effect.schedule(Schedule.jittered(Schedule.spaced("1 hour"))),
      Effect.delay("1 minute"),
      Effect.forkScoped,
    ),
  );
