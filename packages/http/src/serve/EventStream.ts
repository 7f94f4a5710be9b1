/**
 * An answer as server-sent events: `delta` for each piece, then one `entry` with the envelope that a
 * plain ask returns, or one `error` with a failure's. What fails before the first byte is no stream: the stream opens
 * with its first event, or with a comment once none has come for as long as proxies can be trusted to wait.
 */
import type { AnswerEvent, AskError, Progress } from "@parley/core";
import { Cause, Duration, Effect, Fiber, Option, Pull, Stream } from "effect";
import { HttpServerResponse } from "effect/http";
import type { Failure } from "./CoreFailures.ts";
import type { Problems } from "./ValidationErrors.ts";
import { entryWire } from "../contract/Wire.ts";

/** How often a comment tells proxies that the connection is alive. */
const heartbeat = Duration.seconds(15);

/** Whether `Accept` names the type of event streams. */
export const wantsEvents = (accept = ""): boolean =>
  accept
    .split(",")
    .some(
      (range) =>
        /^\s*text\/event-stream\s*(;|$)/i.test(range) && !/;\s*q=0(\.0*)?\s*(;|$)/i.test(range),
    );

/** How far a client got, by the id of the last event that it saw; `null` for none or another's id. */
export const progressOf = (lastEventId: string | undefined): Progress | null => {
  const match = /^([^.]+)\.(\d{1,9})$/.exec(lastEventId ?? "");
  return match === null ? null : { turn: match[1]!, points: Number(match[2]) };
};

/** The response; fails with what failed before it opened. `failed` gives what a client is told of a later failure. */
export const eventStream = Effect.fnUntraced(function* (
  events: Stream.Stream<AnswerEvent, AskError | Problems>,
  failed: (cause: Cause.Cause<AskError | Problems>) => Effect.Effect<Failure>,
) {
  const pull = yield* Stream.toPull(events);
  // An answer is never without an event.
  const pulled = yield* Pull.catchDone(pull, () => Effect.die("an answer without events")).pipe(
    Effect.forkScoped({ startImmediately: true }),
  );
  const first = yield* Effect.timeoutOption(Fiber.join(pulled), heartbeat);
  const told = Stream.fromIterableEffect(Fiber.join(pulled)).pipe(
    Stream.concat(Stream.fromPull(Effect.succeed(pull))),
    Stream.map(eventText),
    Stream.catchCause((cause) => {
      if (Cause.hasInterruptsOnly(cause)) return Stream.failCause(cause);
      return Stream.fromEffect(
        Effect.map(failed(cause), ({ body }) => text("error", JSON.stringify(body))),
      );
    }),
  );
  const beats = Stream.tick(heartbeat).pipe(
    Stream.drop(Option.isSome(first) ? 1 : 0),
    Stream.map(() => ": \n\n"),
  );
  return HttpServerResponse.stream(
    Stream.encodeText(Stream.merge(told, beats, { haltStrategy: "left" })),
    {
      status: 200,
      contentType: "text/event-stream; charset=utf-8",
      headers: {
        "cache-control": "no-store",
        // Some proxies hold a response back until it is complete.
        "x-accel-buffering": "no",
        ...(Option.exists(first, ([{ replayed }]) => replayed) && {
          "idempotent-replayed": "true",
        }),
      },
    },
  );
});

const eventText = (event: AnswerEvent): string => {
  const id = `${event.reached.turn}.${event.reached.points}`;
  return event._tag === "Delta"
    ? text("delta", JSON.stringify({ text: event.text }), id)
    : text("entry", JSON.stringify({ status: 201, data: entryWire(event.entry) }), id);
};

/** One event; JSON holds no line break. */
const text = (name: string, data: string, id?: string): string =>
  `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${data}\n\n`;
