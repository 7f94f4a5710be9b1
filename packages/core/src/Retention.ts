/**
 * Erasing the chats that a chatbot's settings keep for so many days only.
 */
import { Clock, Effect, Exit, Layer, Schedule } from "effect";
import { ChatArchive } from "./ChatArchive.ts";
import { ChatbotRegistry } from "./ChatbotRegistry.ts";

const day = 86_400_000;

/**
 * Makes what erases, of every chatbot with a retention, the chats without an entry since then. What
 * fails for one chatbot is logged, and does not keep the others' chats.
 */
const makeEraseOutdated = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  /** Whether erasures may have to be ended: another process may have been killed before it did. */
  let unended = true;
  /** Whether any were ended quickly alone, and from when on they are to be ended thoroughly. */
  let hurried = false;
  let due = -Infinity;
  /** When they are in any case, for what a process before this one left. */
  let dueOnce = (yield* Clock.currentTimeMillis) + day;

  const eraseOf = Effect.fnUntraced(function* (id: number, list: typeof registry.list) {
    const all = yield* list;
    const days = all.find(({ chatbot }) => chatbot.id === id)?.chatbot.settings.retentionDays;
    if (days === undefined || days === null) return 0;
    const now = yield* Clock.currentTimeMillis;
    return yield* archive.erase(id, { _tag: "IdleSince", limit: new Date(now - days * day) });
  });

  return Effect.gen(function* () {
    // Read again after erasures that took long: what was decided meanwhile holds.
    const list = yield* Effect.cachedWithTTL(registry.list, (exit) =>
      Exit.isSuccess(exit) ? "1 second" : 0,
    );
    const retaining = (yield* list).filter(
      ({ chatbot }) => chatbot.settings.retentionDays !== null,
    );
    let erased = 0;
    for (const { chatbot } of retaining) {
      const some = yield* eraseOf(chatbot.id, list).pipe(
        logged(`Outdated chats of the chatbot ${chatbot.id} could not be erased`, null),
      );
      // What failed may have erased some before.
      if (some !== 0) unended = hurried = true;
      erased += some ?? 0;
    }
    if (erased > 0) {
      yield* Effect.logInfo(`${erased} chats were erased, as their chatbots' settings say`);
    }
    const now = yield* Clock.currentTimeMillis;
    if ((hurried && now >= due) || (now >= dueOnce && retaining.length > 0)) {
      // Until it is done it is tried every time.
      if (yield* archive.compact("thorough")) {
        due = now + day;
        dueOnce = Infinity;
        unended = hurried = false;
      }
    } else if (unended && retaining.length > 0) {
      unended = !(yield* archive.compact("quick"));
    }
  });
});

/** Whatever goes wrong is logged, defects too; `instead` takes the place of the result. */
const logged =
  <B>(message: string, instead: B) =>
  <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A | B, never, R> =>
    Effect.catchCause(effect, (cause) => Effect.as(Effect.logError(message, cause), instead));

/**
 * Does so once an hour, for the first time after a minute. Several processes may; a failure is logged,
 * and the next time makes up for it.
 */
export const layerRetention: Layer.Layer<never, never, ChatArchive | ChatbotRegistry> =
  Layer.effectDiscard(
    Effect.flatMap(makeEraseOutdated, (eraseOutdated) =>
      eraseOutdated.pipe(
        logged("The erasure of outdated chats failed", undefined),
        Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
        Effect.delay("1 minute"),
        Effect.forkScoped,
      ),
    ),
  );
