import { assert, describe, it } from "@effect/vitest";
import { AnswerUnavailable, type AnswerEvent, type AnswerPart } from "@parley/core";
import { Cause, Deferred, Effect, Fiber, Stream } from "effect";
import { TestClock } from "effect/testing";
import { toErrorResponse } from "../../src/serve/ErrorResponses.ts";
import { toEventStream } from "../../src/serve/EventStream.ts";
import { ValidationErrors } from "../../src/serve/ValidationErrors.ts";
import { makeTestHandler, usage } from "../TestHandler.ts";

interface Event {
  readonly event: string;
  readonly id: string | undefined;
  readonly data: any;
}

const parse = (text: string): ReadonlyArray<Event> =>
  text
    .split("\n\n")
    .filter((block) => block !== "" && !block.startsWith(":"))
    .map((block) => {
      const [, event, id, data] = /^event: (.*)\n(?:id: (.*)\n)?data: (.*)$/.exec(block)!;
      return { event: event!, id, data: JSON.parse(data!) };
    });

const delta = (text: string) => ({ _tag: "Delta" as const, text });

const deltas = (...texts: ReadonlyArray<string>): Stream.Stream<AnswerPart> =>
  Stream.fromIterable([...texts.map(delta), { _tag: "Usage" as const, usage }]);

const ask = (headers: Record<string, string> = {}): RequestInit => ({
  method: "POST",
  body: JSON.stringify({ query: "q" }),
  headers: { accept: "text/event-stream", ...headers },
});

const readEvents = (response: Response) =>
  Effect.map(
    Effect.promise(() => response.text()),
    parse,
  );

describe("an event stream", () => {
  it.live("has whole characters without NUL in its pieces, and ids that count code points", () =>
    Effect.gen(function* () {
      const { send } = yield* makeTestHandler(() =>
        deltas("Hel", "lo ", "\ud83d", "\ude00 wor", "ld\0!"),
      );
      const events = yield* readEvents(yield* send("/ask/", ask()));
      const pieces = events.filter(({ event }) => event === "delta");
      assert.strictEqual(pieces.map(({ data }) => data.text).join(""), "Hello 😀 world!");
      assert.match(pieces.at(-1)!.id!, /\.14$/);
      assert.strictEqual(events.at(-1)!.data.data.answer, "Hello 😀 world!");
    }).pipe(Effect.scoped),
  );

  it.live("that breaks off leaves a line in the log with the id of its request", () =>
    Effect.gen(function* () {
      for (const [failure, message] of [
        [Effect.fail(new AnswerUnavailable({ reason: "cut off" })), "cut off"],
        [Effect.die(new Error("a mistake")), "A request met a defect"],
      ] as const) {
        const { logged, send } = yield* makeTestHandler(() =>
          Stream.concat(
            Stream.make(delta("first")),
            Stream.fromEffect(Effect.delay(failure, "50 millis")),
          ),
        );
        const response = yield* send("/ask", ask());
        assert.strictEqual((yield* readEvents(response)).at(-1)!.event, "error");
        assert.strictEqual(logged.length, 1);
        assert.include(logged[0]!, message);
        assert.include(logged[0]!, response.headers.get("x-request-id")!);
      }
    }).pipe(Effect.scoped),
  );

  it.live("continues after the last event that a client with the same key saw", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      let calls = 0;
      const { send } = yield* makeTestHandler(() => {
        calls++;
        return Stream.concat(
          Stream.make(delta("😀 first")),
          Stream.unwrap(Effect.as(Deferred.await(gate), deltas(" second"))),
        );
      });
      const request = (lastId?: string) =>
        ask({
          "idempotency-key": "key",
          ...(lastId !== undefined && { "last-event-id": lastId }),
        });
      const first = yield* send("/ask", request());
      assert.strictEqual(first.headers.get("idempotent-replayed"), null);
      const reader = first.body!.getReader();
      const { value } = yield* Effect.promise(() => reader.read());
      const [seen] = parse(new TextDecoder().decode(value));
      assert.match(seen!.id!, /\.7$/);
      yield* Effect.promise(() => reader.cancel());

      const resumed = yield* Effect.forkChild(send("/ask", request(seen!.id)));
      yield* Effect.sleep("20 millis");
      yield* Deferred.succeed(gate, undefined);
      const live = yield* readEvents(yield* Fiber.join(resumed));
      assert.deepStrictEqual(
        live.map(({ event, data }) => [event, data.text ?? data.data.answer]),
        [
          ["delta", " second"],
          ["entry", "😀 first second"],
        ],
      );
      const turn = seen!.id!.split(".")[0];
      for (const [lastId, expected] of [
        [`${turn}.7`, [" second"]],
        [`${turn}.1`, [" first second"]],
        [`${turn}.14`, []],
        [`${turn}.999`, []],
        ["another.7", ["😀 first second"]],
        ["nonsense", ["😀 first second"]],
        [undefined, ["😀 first second"]],
      ] as const) {
        const stored = yield* send("/ask", request(lastId));
        assert.strictEqual(stored.headers.get("idempotent-replayed"), "true");
        const events = yield* readEvents(stored);
        assert.deepStrictEqual(
          events.slice(0, -1).map(({ data }) => data.text),
          [...expected],
        );
        assert.deepStrictEqual(events.at(-1)!.data, live.at(-1)!.data);
      }
      assert.strictEqual(calls, 1);
    }).pipe(Effect.scoped),
  );

  it.effect("opens with a comment after 15 seconds without an event, and can end in an error", () =>
    Effect.gen(function* () {
      for (const [error, envelope] of [
        [
          new AnswerUnavailable({ reason: "test" }),
          { status: 500, code: 500002, message: "ANSWER_UNAVAILABLE" },
        ],
        [
          new ValidationErrors("ASK_DTO", [[["Idempotency-Key"], "REUSED"]]),
          {
            status: 422,
            errors: [
              {
                code: 4222053,
                message: "ASK_DTO_IDEMPOTENCY_KEY_REUSED",
                path: ["Idempotency-Key"],
              },
            ],
          },
        ],
      ] as const) {
        const events = Stream.fromEffect(Effect.delay(Effect.fail(error), "40 seconds"));
        const opening = yield* Effect.forkChild(
          toEventStream(events, () => Effect.succeed(toErrorResponse(Cause.fail(error)))),
        );
        yield* TestClock.adjust("14 seconds");
        assert.isUndefined(opening.pollUnsafe());
        yield* TestClock.adjust("1 second");
        const { body, headers, status } = yield* Fiber.join(opening);
        assert.strictEqual(status, 200);
        assert.strictEqual(headers["idempotent-replayed"], undefined);
        if (body._tag !== "Stream") return assert.fail("a stream");
        const reading = yield* Stream.decodeText(body.stream).pipe(
          Stream.runCollect,
          Effect.forkChild,
        );
        yield* TestClock.adjust("1 second");
        yield* TestClock.adjust("24 seconds");
        const [first, second, ...rest] = yield* Fiber.join(reading);
        assert.deepStrictEqual([first, second], [": \n\n", ": \n\n"]);
        assert.deepStrictEqual(parse(rest.join("")), [
          { event: "error", id: undefined, data: envelope },
        ]);
      }
    }).pipe(Effect.scoped),
  );

  it.effect("is kept alive by a comment every 15 seconds", () =>
    Effect.gen(function* () {
      const reached = { turn: "turn", points: 5 };
      const first: AnswerEvent = { ...delta("first"), reached, replayed: false };
      const { body } = yield* toEventStream(Stream.concat(Stream.make(first), Stream.never), () =>
        Effect.die("no failure"),
      );
      if (body._tag !== "Stream") return assert.fail("a stream");
      const reading = yield* Stream.decodeText(body.stream).pipe(
        Stream.take(3),
        Stream.runCollect,
        Effect.forkChild,
      );
      yield* TestClock.adjust("31 seconds");
      const [event, ...comments] = yield* Fiber.join(reading);
      assert.include(event!, "event: delta");
      assert.deepStrictEqual(comments, [": \n\n", ": \n\n"]);
    }).pipe(Effect.scoped),
  );
});
