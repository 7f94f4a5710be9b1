/**
 * An answer as server-sent events: a `delta` for each piece, then one `entry` with the envelope of a plain ask, or one
 * `error` with the envelope of a failure.
 */
import type { AnswerEvent, AskError, Progress } from "@parley/core";
import { Cause, Duration, Effect, Fiber, Option, Pull, Stream } from "effect";
import { HttpServerResponse } from "effect/http";
import { encodeEntry, guarded } from "../contract/Wire.ts";
import type { ReportFailure } from "./ErrorResponses.ts";

/** Between two comments, by which proxies see that the connection is alive. */
const heartbeat = Duration.seconds(15);

/** Whether an `Accept` header names the type of event streams. */
export const acceptsEvents = (accept = ""): boolean =>
  accept
    .split(",")
    .some(
      (range) =>
        /^\s*text\/event-stream\s*(;|$)/i.test(range) && !/;\s*q=0(\.0*)?\s*(;|$)/i.test(range),
    );

/** The progress in a `Last-Event-ID` header; `null` where there is none. */
export const parseEventId = (id = ""): Progress | null => {
  const [, turn, points] = /^([^.]+)\.(\d{1,9})$/.exec(id) ?? [];
  return turn === undefined ? null : { turn, points: Number(points) };
};

/**
 * The response. It opens with the first event, so that a failure before that is a plain response, or with a comment
 * when no event arrives for as long as proxies wait. A later failure is reported by `reportFailure` as the last event.
 */
export const toEventStream = Effect.fnUntraced(function* (
  events: Stream.Stream<AnswerEvent, AskError>,
  reportFailure: ReportFailure,
) {
  const pull = yield* Stream.toPull(events);
  const opening = yield* Pull.catchDone(pull, () => Effect.die("an answer without events")).pipe(
    Effect.forkScoped({ startImmediately: true }),
  );
  const first = yield* Effect.timeoutOption(Fiber.join(opening), heartbeat);
  const answer = Stream.fromIterableEffect(Fiber.join(opening)).pipe(
    Stream.concat(Stream.fromPull(Effect.succeed(pull))),
    Stream.map(encodeEvent),
    Stream.catchCause((cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Stream.failCause(cause)
        : Stream.fromEffect(Effect.map(reportFailure(cause), ({ body }) => encode("error", body))),
    ),
  );
  const comments = Stream.tick(heartbeat).pipe(
    Stream.drop(Option.isSome(first) ? 1 : 0),
    Stream.map(() => ": \n\n"),
  );
  return HttpServerResponse.stream(
    Stream.encodeText(Stream.merge(answer, comments, { haltStrategy: "left" })),
    {
      status: 200,
      contentType: "text/event-stream; charset=utf-8",
      headers: {
        ...guarded,
        // Compression holds the pieces of a response back, and so do some proxies.
        "cache-control": "no-store, no-transform",
        "x-accel-buffering": "no",
        ...(Option.exists(first, ([{ replayed }]) => replayed) && {
          "idempotent-replayed": "true",
        }),
      },
    },
  );
});

const encodeEvent = (event: AnswerEvent): string => {
  const id = `${event.reached.turn}.${event.reached.points}`;
  return event._tag === "Delta"
    ? encode("delta", { text: event.text }, id)
    : encode("entry", { status: 201, data: encodeEntry(event.entry) }, id);
};

/** One event; its JSON holds no line break. */
const encode = (name: string, data: object, id?: string): string =>
  `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
