/**
 * An answer as server-sent events: a `delta` for each piece, then one `entry` with the envelope of a plain ask, or one
 * `error` with the envelope of a failure.
 */
import type { AnswerEvent, AskError, Progress } from "@parley/core";
import { Array as Arr, Cause, Duration, Effect, Pull, Stream } from "effect";
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
  const { offer, peek, take } = makeRelay<string, AskError | Cause.Done>();
  let replayed = false;
  let isOpen = false;
  yield* Stream.runForEachArray(events, (arrived) => {
    replayed ||= arrived[0].replayed;
    return offer(Effect.succeed(arrived.map(encodeEvent).join("")));
  }).pipe(
    Effect.catchCause((cause) =>
      isOpen && !Cause.hasInterruptsOnly(cause)
        ? Effect.flatMap(reportFailure(cause), ({ body }) =>
            offer(Effect.succeed(encode("error", body))),
          )
        : offer(Effect.failCause(cause)),
    ),
    Effect.andThen(offer(Cause.done())),
    Effect.forkScoped,
  );
  yield* offer(Effect.succeed(": \n\n")).pipe(
    Effect.delay(heartbeat),
    Effect.forever,
    Effect.forkScoped,
  );
  yield* Pull.catchDone(peek, () => Effect.die("an answer without events"));
  isOpen = true;
  const encoder = new TextEncoder();
  const bytes = Effect.map(take, (text) => Arr.of(encoder.encode(text)));
  return HttpServerResponse.stream(Stream.fromPull(Effect.succeed(bytes)), {
    status: 200,
    contentType: "text/event-stream; charset=utf-8",
    headers: {
      ...guarded,
      // Some proxies hold a response back until it is complete.
      "x-accel-buffering": "no",
      ...(replayed ? { "idempotent-replayed": "true" } : {}),
    },
  });
});

/** Passes pieces on one by one. An offer waits until its piece is taken. */
const makeRelay = <A, E>() => {
  const offers: Array<{ readonly piece: Effect.Effect<A, E>; readonly taken: () => void }> = [];
  let wake = () => {};
  const whenOffered = (isLast: boolean) =>
    Effect.callback<A, E>((resume) => {
      wake = () => {
        const [first] = offers;
        if (first === undefined) return;
        wake = () => {};
        if (isLast) offers.shift();
        resume(first.piece);
        if (isLast) first.taken();
      };
      wake();
    });
  return {
    offer: (piece: Effect.Effect<A, E>) =>
      Effect.callback<void>((resume) => {
        offers.push({ piece, taken: () => resume(Effect.void) });
        wake();
      }),
    /** Waits for a piece, and leaves it there. */
    peek: whenOffered(false),
    take: whenOffered(true),
  };
};

const encodeEvent = (event: AnswerEvent): string => {
  const id = `${event.reached.turn}.${event.reached.points}`;
  return event._tag === "Delta"
    ? encode("delta", { text: event.text }, id)
    : encode("entry", { status: 201, data: encodeEntry(event.entry) }, id);
};

/** One event; its JSON holds no line break. */
const encode = (name: string, data: object, id?: string): string =>
  `event: ${name}\n${id === undefined ? "" : `id: ${id}\n`}data: ${JSON.stringify(data)}\n\n`;
