/**
 * Streams an answer as server-sent events: a `delta` for each piece, then one `entry` with the body of a 201 response,
 * or one `error` with the body of an error response.
 */
import type { AnswerEvent, AskError, EntryInclude, Progress, KeepAlive } from "@parley/core";
import { Array as Arr, Cause, Channel, Duration, Effect, Pull, Stream } from "effect";
import { HttpServerResponse } from "effect/http";
import { encodeEntry, protectiveHeaders } from "../contract/Wire.ts";
import type { ReportFailure } from "./ErrorResponses.ts";

/** The interval between comments, which show proxies that the connection is alive. */
const heartbeat = Duration.seconds(15);
const comment = ": \n\n";

/** Returns whether an `Accept` header accepts `text/event-stream` by name; wildcards do not count. */
export const acceptsEvents = (accept = ""): boolean =>
  accept
    .split(",")
    .some(
      (range) =>
        /^\s*text\/event-stream\s*(;|$)/i.test(range) && !/;\s*q=0(\.0*)?\s*(;|$)/i.test(range),
    );

/** Parses the progress in a `Last-Event-ID` header. Returns `null` if the header is absent or malformed. */
export const parseEventId = (id = ""): Progress | null => {
  const [, turnId, points] = /^([^.]+)\.(\d{1,9})$/.exec(id) ?? [];
  return turnId === undefined ? null : { turnId, points: Number(points) };
};

/**
 * Creates the streamed response to an ask. It begins with the first event, or with a comment if no event arrives within
 * one heartbeat interval. A failure before then gets a plain response. A later failure goes to `reportFailure`, and the
 * body of its response becomes the last event.
 */
export const toEventStream = Effect.fnUntraced(function* (
  stream: (
    keepAlive: KeepAlive<typeof comment>,
  ) => Stream.Stream<AnswerEvent | typeof comment, AskError>,
  include: ReadonlyArray<EntryInclude>,
  reportFailure: ReportFailure,
) {
  const events = stream({ value: comment, every: heartbeat });
  const pull = yield* Channel.toPullScoped(Stream.toChannel(events), yield* Effect.scope);
  const first = yield* Pull.catchDone(pull, () =>
    Effect.die("an answer's stream ended without an event"),
  );
  const replayed = first.some((event) => event !== comment && event.replayed);
  let opening: typeof first | null = first;
  // `Stream.concat` would cost more per event than everything else here.
  const arrivals = Effect.suspend(() => {
    const batch = opening;
    opening = null;
    return batch === null ? pull : Effect.succeed(batch);
  });
  const answer = Stream.fromPull(Effect.succeed(arrivals)).pipe(
    Stream.mapArray((batch) => Arr.of(batch.map((event) => encodeEvent(event, include)).join(""))),
    Stream.catchCause((cause) =>
      Cause.hasInterruptsOnly(cause)
        ? Stream.failCause(cause)
        : Stream.fromEffect(Effect.map(reportFailure(cause), ({ body }) => encode("error", body))),
    ),
  );
  return HttpServerResponse.stream(Stream.encodeText(answer), {
    status: 200,
    contentType: "text/event-stream; charset=utf-8",
    headers: {
      ...protectiveHeaders,
      // Without these two headers, compression and some proxies would buffer the chunks.
      "cache-control": "no-store, no-transform",
      "x-accel-buffering": "no",
      ...(replayed && { "idempotent-replayed": "true" }),
    },
  });
});

const encodeEvent = (
  event: AnswerEvent | typeof comment,
  include: ReadonlyArray<EntryInclude>,
): string => {
  if (event === comment) return comment;
  const id = `${event.progress.turnId}.${event.progress.points}`;
  return event._tag === "Delta"
    ? encode("delta", { text: event.text }, id)
    : encode("entry", { status: 201, data: encodeEntry(event.entry, include) }, id);
};

/** Encodes one event. Its JSON contains no line breaks. */
const encode = (name: string, data: object, id?: string): string =>
  `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
