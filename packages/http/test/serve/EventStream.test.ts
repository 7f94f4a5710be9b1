import { assert, describe, it } from "@effect/vitest";
import { AnswerUnavailable, type AnswerEvent, type AnswerPart } from "@parley/core";
import { Cause, Deferred, Effect, Fiber, Stream } from "effect";
import { TestClock } from "effect/testing";
import { toErrorResponse } from "../../src/serve/ErrorResponses.ts";
import { toEventStream } from "../../src/serve/EventStream.ts";
import { ValidationErrors } from "../../src/serve/ValidationErrors.ts";
import { served, usage } from "../TestHandler.ts";

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
      const fields = new Map(
        block.split("\n").map((line) => {
          const colon = line.indexOf(": ");
          return [line.slice(0, colon), line.slice(colon + 2)];
        }),
      );
      return {
        event: fields.get("event")!,
        id: fields.get("id"),
        data: JSON.parse(fields.get("data")!),
      };
    });

const deltas = (...texts: ReadonlyArray<string>): Stream.Stream<AnswerPart> =>
  Stream.fromIterable([
    ...texts.map((text) => ({ _tag: "Delta" as const, text })),
    { _tag: "Usage" as const, usage },
  ]);

const ask = (body: unknown, headers: Record<string, string> = {}): RequestInit => ({
  method: "POST",
  body: JSON.stringify(body),
  headers: { accept: "text/event-stream", ...headers },
});

const body = (response: Response) => Effect.promise(() => response.text());

describe("an answer as events", () => {
  it.live("gives the pieces, then the envelope that a plain ask and the history give", () =>
    Effect.gen(function* () {
      const { send } = yield* served(() => deltas("Hel", "lo ", "\ud83d", "\ude00 wor", "ld\0!"));
      const response = yield* send("/ask/", ask({ query: "q" }));
      assert.strictEqual(response.status, 200);
      assert.strictEqual(response.headers.get("content-type"), "text/event-stream; charset=utf-8");
      const events = parse(yield* body(response));
      const pieces = events.filter(({ event }) => event === "delta");
      assert.strictEqual(pieces.map(({ data }) => data.text).join(""), "Hello 😀 world!");
      const last = events.at(-1)!;
      assert.strictEqual(last.event, "entry");
      assert.strictEqual(last.data.status, 201);
      assert.strictEqual(last.data.data.answer, "Hello 😀 world!");
      assert.match(pieces.at(-1)!.id!, /\.14$/);
      const history = yield* send(`/api/chats/${last.data.data.chat_id}/history`);
      assert.deepStrictEqual(
        ((yield* Effect.promise(() => history.json())) as any).data[0],
        last.data.data,
      );
    }).pipe(Effect.scoped),
  );

  it.live("reach the client as they come", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      const { send } = yield* served(() =>
        Stream.concat(
          Stream.make({ _tag: "Delta" as const, text: "first" }),
          Stream.unwrap(Effect.as(Deferred.await(gate), deltas(" second"))),
        ),
      );
      const response = yield* send("/ask/", ask({ query: "q" }));
      const reader = response.body!.getReader();
      const first = yield* Effect.promise(() => reader.read());
      assert.include(new TextDecoder().decode(first.value), '{"text":"first"}');
      yield* Deferred.succeed(gate, undefined);
      let rest = "";
      while (true) {
        const { done, value } = yield* Effect.promise(() => reader.read());
        if (done) break;
        rest += new TextDecoder().decode(value);
      }
      assert.deepStrictEqual(
        parse(rest).map(({ event }) => event),
        ["delta", "entry"],
      );
    }).pipe(Effect.scoped),
  );

  it.live("are none for what fails before the first", () =>
    Effect.gen(function* () {
      const broken = new AnswerUnavailable({ reason: "test" });
      const { send } = yield* served(() => Stream.fail(broken));
      for (const [request, status] of [
        [ask({ query: "" }), 422],
        [ask({ query: "q", chat_id: 12345 }), 404],
        [ask({ query: "q" }), 500],
      ] as const) {
        const response = yield* send("/ask", request);
        assert.strictEqual(response.status, status);
        assert.strictEqual(response.headers.get("content-type"), "application/json; charset=utf-8");
        assert.strictEqual(((yield* Effect.promise(() => response.json())) as any).status, status);
      }
    }).pipe(Effect.scoped),
  );

  it.live("end with a failure's envelope when the answer breaks off", () =>
    Effect.gen(function* () {
      const broken = new AnswerUnavailable({ reason: "test" });
      const { send } = yield* served(() =>
        Stream.concat(
          Stream.make({ _tag: "Delta" as const, text: "first" }),
          Stream.fromEffect(Effect.delay(Effect.fail(broken), "50 millis")),
        ),
      );
      const events = parse(yield* body(yield* send("/ask", ask({ query: "q" }))));
      assert.deepStrictEqual(
        events.map(({ event, data }) => [event, data]),
        [
          ["delta", { text: "first" }],
          ["error", { status: 500, code: 500002, message: "ANSWER_UNAVAILABLE" }],
        ],
      );
      const chats = (yield* Effect.promise(async () =>
        (await Effect.runPromise(send("/api/chats"))).json(),
      )) as any;
      assert.strictEqual(chats.meta.total, 0);
    }).pipe(Effect.scoped),
  );

  it.live("leave a line in the log when the answer breaks off", () =>
    Effect.gen(function* () {
      for (const [end, message] of [
        [Effect.fail(new AnswerUnavailable({ reason: "cut off" })), "cut off"],
        [Effect.die(new Error("a mistake")), "A request met a defect"],
      ] as const) {
        const { logged, send } = yield* served(() =>
          Stream.concat(
            Stream.make({ _tag: "Delta" as const, text: "first" }),
            Stream.fromEffect(Effect.delay(end, "50 millis")),
          ),
        );
        const response = yield* send("/ask", ask({ query: "q" }));
        assert.strictEqual(parse(yield* body(response)).at(-1)!.event, "error");
        assert.strictEqual(logged.length, 1);
        assert.include(logged[0]!, message);
        assert.include(logged[0]!, response.headers.get("x-request-id")!);
      }
    }).pipe(Effect.scoped),
  );

  it.live("go on where a client with the same key and last id got to", () =>
    Effect.gen(function* () {
      const gate = yield* Deferred.make<void>();
      let calls = 0;
      const { send } = yield* served(() => {
        calls++;
        return Stream.concat(
          Stream.make({ _tag: "Delta" as const, text: "😀 first" }),
          Stream.unwrap(Effect.as(Deferred.await(gate), deltas(" second"))),
        );
      });
      const request = (lastId?: string) =>
        ask(
          { query: "q" },
          {
            "idempotency-key": "key",
            ...(lastId !== undefined && { "last-event-id": lastId }),
          },
        );
      const first = yield* send("/ask", request());
      assert.strictEqual(first.headers.get("idempotent-replayed"), null);
      const reader = first.body!.getReader();
      const [seen] = parse(
        new TextDecoder().decode((yield* Effect.promise(() => reader.read())).value),
      );
      assert.match(seen!.id!, /\.7$/);
      yield* Effect.promise(() => reader.cancel());

      const resumed = yield* Effect.forkChild(send("/ask", request(seen!.id)));
      yield* Effect.sleep("20 millis");
      yield* Deferred.succeed(gate, undefined);
      const live = parse(yield* body(yield* Fiber.join(resumed)));
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
        const events = parse(yield* body(stored));
        assert.deepStrictEqual(
          events.slice(0, -1).map(({ data }) => data.text),
          [...expected],
        );
        assert.deepStrictEqual(events.at(-1)!.data, live.at(-1)!.data);
      }
      assert.strictEqual(calls, 1);
    }).pipe(Effect.scoped),
  );

  it.live("stop with the client when it says so", () =>
    Effect.gen(function* () {
      const cancelled = yield* Deferred.make<void>();
      const { send } = yield* served(() =>
        Stream.concat(Stream.make({ _tag: "Delta" as const, text: "first" }), Stream.never).pipe(
          Stream.ensuring(Deferred.succeed(cancelled, undefined)),
        ),
      );
      const response = yield* send("/ask", ask({ query: "q" }, { "on-disconnect": "cancel" }));
      const reader = response.body!.getReader();
      yield* Effect.promise(() => reader.read());
      yield* Effect.promise(() => reader.cancel());
      yield* Effect.timeout(Deferred.await(cancelled), "1 second");
    }).pipe(Effect.scoped),
  );

  it.effect(
    "begin with a comment after 15 seconds without a piece, and may still end in an error",
    () =>
      Effect.gen(function* () {
        const reused = new ValidationErrors("ASK_DTO");
        reused.add(["Idempotency-Key"], "REUSED");
        for (const [error, body] of [
          [
            new AnswerUnavailable({ reason: "test" }),
            { status: 500, code: 500002, message: "ANSWER_UNAVAILABLE" },
          ],
          [
            reused,
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
          const { body: opened, headers, status } = yield* Fiber.join(opening);
          assert.strictEqual(status, 200);
          assert.strictEqual(headers["idempotent-replayed"], undefined);
          if (opened._tag !== "Stream") return assert.fail("a stream");
          const reading = yield* Stream.decodeText(opened.stream).pipe(
            Stream.runCollect,
            Effect.forkChild,
          );
          yield* TestClock.adjust("1 second");
          yield* TestClock.adjust("24 seconds");
          const [first, second, ...rest] = yield* Fiber.join(reading);
          assert.deepStrictEqual([first, second], [": \n\n", ": \n\n"]);
          assert.deepStrictEqual(parse(rest.join("")), [
            { event: "error", id: undefined, data: body },
          ]);
        }
      }).pipe(Effect.scoped),
  );

  it.effect("are kept alive by a comment every 15 seconds", () =>
    Effect.gen(function* () {
      const reached = { turn: "turn", points: 5 };
      const first: AnswerEvent = { _tag: "Delta", text: "first", reached, replayed: false };
      const response = yield* toEventStream(Stream.concat(Stream.make(first), Stream.never), () =>
        Effect.die("no failure"),
      );
      if (response.body._tag !== "Stream") return assert.fail("a stream");
      const reading = yield* Stream.decodeText(response.body.stream).pipe(
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
