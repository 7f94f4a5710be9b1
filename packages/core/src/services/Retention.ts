/**
 * Erases expired chats, which have had no entry for their chatbot's `retentionDays`, and reports the time until the
 * next key expires and the sizes of the biggest chatbots.
 */
import { Clock, Context, Duration, Effect, Layer, Random, Schedule } from "effect";
import { dayMillis } from "../model/Day.ts";
import type { ChatbotId } from "../model/Ids.ts";
import { ChatArchive, type ChatbotSize } from "../ports/ChatArchive.ts";
import { ChatbotRegistry } from "../ports/ChatbotRegistry.ts";
import { BackgroundSleep } from "./BackgroundSleep.ts";
import { registerGauge } from "./Telemetry.ts";

const actor = "retention";
/** How many of the biggest chatbots have a series for their size. A chatbot that grows smaller keeps its series. */
const seriesOfSizes = 10;

/**
 * Erases the expired chats of every chatbot once, and returns whether that succeeded. Logs every failure, including
 * defects; the next run erases the chats that this run could not.
 */
export const eraseExpired = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  let hasFailed = false;
  const logFailures = (message: string) =>
    Effect.catchCause((cause) => {
      hasFailed = true;
      return Effect.logError(message, cause);
    });
  const eraseFrom = (id: ChatbotId) =>
    // Read again, because the settings may have changed while the run erased other chatbots' chats.
    Effect.flatMap(registry.get(id), ({ chatbot: { settings } }) =>
      settings.retentionDays === null
        ? Effect.void
        : archive.erase(id, { _tag: "IdleFor", millis: settings.retentionDays * dayMillis }, actor),
    ).pipe(
      Effect.catchTag("ChatbotNotFound", () => Effect.void),
      logFailures(`Expired chats of chatbot ${id} could not be erased`),
    );
  yield* Effect.flatMap(registry.expiries, ({ chatbots }) =>
    Effect.forEach(chatbots, eraseFrom, { discard: true }),
  ).pipe(logFailures("Erasing expired chats failed"));
  return !hasFailed;
});

/** Runs retention after a minute and then about once an hour. */
const repeatHourly = <R>(run: Effect.Effect<unknown, never, R>) =>
  Effect.gen(function* () {
    const sleep = yield* BackgroundSleep;
    yield* sleep(Duration.minutes(1));
    while (true) {
      yield* run;
      yield* sleep(Duration.minutes(yield* Random.nextBetween(48, 72)));
    }
  });

const retain = Effect.gen(function* () {
  const registry = yield* ChatbotRegistry;
  const archive = yield* ChatArchive;
  const context = yield* Effect.context<never>();
  const now = () => Context.get(context, Clock.Clock).currentTimeMillisUnsafe();
  let completedAt = now();
  /** When the next key expires, in milliseconds since the Unix epoch. */
  let nextExpiry = Infinity;
  const gauge = (name: string, description: string, millis: () => number) =>
    registerGauge(context, name, description, { unit: "s" }, () => millis() / 1000);
  gauge(
    "parley.retention.age",
    "Time since the last successful retention run or, if none yet, since startup",
    () => now() - completedAt,
  );
  gauge("parley.key.expiry", "Time until the next key expires; infinite if no key expires", () =>
    Math.max(0, nextExpiry - now()),
  );

  const readNextExpiry = Effect.map(registry.expiries, ({ nextKey }) => {
    nextExpiry = nextKey?.getTime() ?? Infinity;
  });

  yield* Effect.ignore(readNextExpiry).pipe(
    Effect.delay("1 second"),
    Effect.repeat(Schedule.spaced("1 minute")),
    Effect.forkChild,
  );
  let sizes: ReadonlyMap<ChatbotId, ChatbotSize> = new Map();
  const chatbotsWithSeries = new Set<ChatbotId>();
  const readSizes = Effect.map(archive.sizes, (all) => {
    sizes = new Map(all.map((size) => [size.chatbot, size]));
    for (const { chatbot } of all.toSorted((a, b) => b.bytes - a.bytes).slice(0, seriesOfSizes)) {
      if (chatbotsWithSeries.has(chatbot)) continue;
      chatbotsWithSeries.add(chatbot);
      const ofChatbot = (name: string, unit: string, read: (size: ChatbotSize) => number) =>
        registerGauge(
          context,
          name,
          "Chats and entries of the biggest chatbots",
          { chatbot: String(chatbot), unit },
          () => {
            const size = sizes.get(chatbot);
            return size === undefined ? 0 : read(size);
          },
        );
      ofChatbot("parley.chatbot.rows", "", ({ chats, entries }) => chats + entries);
      ofChatbot("parley.chatbot.size", "By", ({ bytes }) => bytes);
    }
  });
  yield* Effect.ignore(readSizes).pipe(
    Effect.repeat(Schedule.spaced("10 minutes")),
    Effect.delay("1 minute"),
    Effect.forkChild,
  );

  const run = Effect.map(eraseExpired, (isComplete) => {
    if (isComplete) completedAt = now();
  });
  yield* repeatHourly(run);
});

/**
 * Erases expired chats a minute after the start and then about once an hour, as the actor `retention`. Several
 * processes may run this layer at the same time.
 */
export const layerRetention: Layer.Layer<never, never, ChatArchive | ChatbotRegistry> =
  Layer.effectDiscard(Effect.forkScoped(retain, { startImmediately: true }));

/** Erases expired chats as `layerRetention` does, without its metrics. */
export const layerErasure: Layer.Layer<never, never, ChatArchive | ChatbotRegistry> =
  Layer.effectDiscard(Effect.forkScoped(repeatHourly(eraseExpired), { startImmediately: true }));
