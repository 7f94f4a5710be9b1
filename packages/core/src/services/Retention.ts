/**
 * Erases expired chats, which have had no entry for their chatbot's `retentionDays`, and reports the time until the
 * next key expires.
 */
import { Clock, Context, Effect, Layer, Schedule } from "effect";
import { ChatArchive } from "../ports/ChatArchive.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import { registerGauge } from "./Telemetry.ts";

const day = 86_400_000;

const retain = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  const context = yield* Effect.context<never>();
  const now = () => Context.get(context, Clock.Clock).currentTimeMillisUnsafe();
  let completedAt = now();
  let hasFailed = false;
  /** The times at which unrevoked keys expire, in milliseconds since the Unix epoch. */
  let expiries: ReadonlyArray<number> = [];
  const gauge = (name: string, description: string, millis: () => number) =>
    registerGauge(context, name, description, { unit: "s" }, () => millis() / 1000);
  gauge(
    "parley.retention.age",
    "Time since the last successful retention run or, if none yet, since startup",
    () => now() - completedAt,
  );
  gauge(
    "parley.key.expiry",
    "Time until the next key expires; infinite if no key expires",
    () => Math.min(...expiries.filter((expiry) => expiry > now())) - now(),
  );

  /** Logs every failure, including defects. The next run erases the chats that this run could not. */
  const logFailures = (message: string) =>
    Effect.catchCause((cause) => {
      hasFailed = true;
      return Effect.logError(message, cause);
    });
  const readExpiries = Effect.map(registry.list, (all) => {
    const keys = all.flatMap(({ keys }) => keys.filter(({ revokedAt }) => revokedAt === null));
    expiries = keys.flatMap(({ expiresAt }) => expiresAt?.getTime() ?? []);
  });
  const eraseExpired = Effect.gen(function* () {
    hasFailed = false;
    for (const { chatbot } of yield* registry.list) {
      const days = chatbot.settings.retentionDays;
      if (days === null) continue;
      yield* archive
        .erase(chatbot.id, { _tag: "IdleFor", millis: days * day }, "retention")
        .pipe(logFailures(`Expired chats of chatbot ${chatbot.id} could not be erased`));
    }
    if (!hasFailed) completedAt = now();
  });

  yield* Effect.ignore(readExpiries).pipe(
    Effect.delay("1 second"),
    Effect.repeat(Schedule.spaced("1 minute")),
    Effect.forkChild,
  );
  yield* eraseExpired.pipe(
    logFailures("Erasing expired chats failed"),
    Effect.repeat(Schedule.jittered(Schedule.spaced("1 hour"))),
    Effect.delay("1 minute"),
  );
});

/**
 * Erases expired chats a minute after the start and then about once an hour, as the actor `retention`. Several
 * processes may run this layer at the same time.
 */
export const layerRetention: Layer.Layer<never, never, ChatArchive | ChatbotRegistry> =
  Layer.effectDiscard(Effect.forkScoped(retain, { startImmediately: true }));
