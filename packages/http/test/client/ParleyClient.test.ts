import { assert, it } from "@effect/vitest";
import { scopes } from "@parley/core";
import { AnswerUnavailable } from "@parley/core/ports";
import { ParleyClient, ParleyError, type AnswerEvent } from "@parley/http/client";
import { Effect, Layer, Redacted, Schedule, Stream, Tracer } from "effect";
import { makeTestHandler } from "../TestHandler.ts";

const answer = (question: string) =>
  question === "broken"
    ? Stream.fail(new AnswerUnavailable({ reason: "test" }))
    : Stream.make("one ", "two").pipe(
        Stream.schedule(Schedule.spaced("50 millis")),
        Stream.map((text) => ({ _tag: "Delta" as const, text })),
      );

/** Runs the body with a client of a handler whose responses go through `change`. */
const withClient = <A, E>(
  body: Effect.Effect<A, E, ParleyClient>,
  change: (response: Response, request: Request) => Response = (response) => response,
  apiKey?: string,
) =>
  Effect.gen(function* () {
    const { handler, key } = yield* makeTestHandler(answer, {}, undefined, { scopes });
    const layer = ParleyClient.layerHandler(
      async (request) => change(await handler(request), request),
      { apiKey: apiKey === undefined ? key : Redacted.make(apiKey) },
    );
    return yield* Effect.provide(body, layer);
  });

it.live("each endpoint has a method, whose values have the types of the contract", () =>
  withClient(
    Effect.gen(function* () {
      const client = yield* ParleyClient;
      const details = yield* client.details();
      assert.strictEqual(details.data.chatBotName, "Bot");
      const created = yield* client.createChat({ payload: { name: "First", userRef: "user-7" } });
      const params = { chat_id: created.data.id };
      const { data } = yield* client.ask({ payload: { query: "Hi?", chat_id: created.data.id } });
      assert.strictEqual(data.answer, "one two");
      const entry: number = data.id;
      yield* client.changeEntry({
        params: { ...params, entry_id: entry },
        payload: { rating: "good" },
      });
      yield* client.postEntry({
        params,
        payload: { text: "Ann here.", metadata: { author: "Ann" } },
      });
      const history = yield* client.history({
        params,
        query: { include: ["feedback", "metadata"], orderBy: ["id"], desc: [false], limit: 10 },
      });
      assert.deepStrictEqual(
        history.data.map(({ answer, metadata, rating }) => [answer, metadata, rating]),
        [
          ["Hello", null, null],
          ["one two", null, "good"],
          ["Ann here.", { author: "Ann" }, null],
        ],
      );
      assert.strictEqual(history.meta.total, 3);
      yield* client.changeChat({ params, payload: { name: "Second" } });
      const chats = yield* client.listChats({ query: { search: "second" } });
      assert.deepStrictEqual(
        chats.data.map(({ name }) => name),
        ["Second"],
      );
      yield* client.deleteChat({ params });
      assert.strictEqual((yield* client.listChats()).meta.total, 0);
    }),
  ),
);

it.live("errors differ by their code, and validation errors name each field", () =>
  withClient(
    Effect.gen(function* () {
      const client = yield* ParleyClient;
      const params = { chat_id: 99 };
      const missing = yield* client.history({ params }).pipe(
        Effect.as("found"),
        Effect.catchReason("ParleyError", "CHAT_DOES_NOT_EXISTS", () => Effect.succeed("missing")),
      );
      assert.strictEqual(missing, "missing");
      const failed = yield* Effect.flip(client.ask({ payload: { query: "broken" } }));
      assert.instanceOf(failed, ParleyError);
      assert.deepInclude(failed, { status: 500, retryAfterSeconds: 0 });
      assert.deepEqual(failed.reason, { _tag: "ANSWER_UNAVAILABLE" });
      assert.match(failed.requestId!, /./);
      const invalid = yield* Effect.flip(client.ask({ payload: { query: " " } }));
      assert.deepEqual((invalid as ParleyError).reason, {
        _tag: "VALIDATION_FAILED",
        errors: [{ code: 4222056, message: "ASK_DTO_QUERY_BLANK", path: ["query"] }],
      });
    }),
  ),
);

it.live("a call that fails temporarily is retried with its idempotency key", () => {
  const keys: Array<string | null> = [];
  const change = (response: Response, { headers, method }: Request) => {
    if (method !== "POST" || keys.push(headers.get("idempotency-key")) > 1) return response;
    return new Response("<html>", { status: 502 });
  };
  return withClient(
    Effect.gen(function* () {
      const client = yield* ParleyClient;
      yield* client.createChat();
      assert.strictEqual((yield* client.listChats()).meta.total, 1);
      assert.lengthOf(keys, 2);
      assert.strictEqual(keys[0], keys[1]);
    }),
    change,
  );
});

it.live("a wrong key is not retried, and a call is a span", () => {
  let requests = 0;
  const spans: Array<string> = [];
  const tracer = Tracer.make({
    span: (options) => {
      spans.push(options.name);
      return new Tracer.NativeSpan(options);
    },
  });
  return withClient(
    Effect.gen(function* () {
      const error = yield* Effect.flip(ParleyClient.use((client) => client.details()));
      assert.deepEqual((error as ParleyError).reason, { _tag: "API_KEY_NOT_VALID" });
      assert.strictEqual(requests, 1);
      assert.include(spans, "GET");
    }),
    (response) => (requests++, response),
    "wrong",
  ).pipe(Effect.provide(Layer.succeed(Tracer.Tracer, tracer)));
});

it.live("a stream emits the answer as it arrives, and resumes where it broke off", () => {
  const requests: Array<string | null> = [];
  const change = (response: Response, { headers }: Request) => {
    if (requests.push(headers.get("last-event-id")) > 1) return response;
    // Breaks off after the first delta.
    const body = response.body!.pipeThrough(new TextDecoderStream()).pipeThrough(
      new TransformStream<string, string>({
        transform: (text, controller) => {
          const [first, second] = text.split(/(?<=two[^]*)/);
          if (second !== undefined) return controller.terminate();
          controller.enqueue(first!);
        },
      }),
    );
    return new Response(body.pipeThrough(new TextEncoderStream()), response);
  };
  return withClient(
    Effect.gen(function* () {
      const events: ReadonlyArray<AnswerEvent> = yield* ParleyClient.useSync((client) =>
        client.stream({ payload: { query: "Hi?" } }),
      ).pipe(Stream.unwrap, Stream.runCollect);
      assert.deepStrictEqual(events.slice(0, 2), [
        { _tag: "Delta", text: "one " },
        { _tag: "Delta", text: "two" },
      ]);
      const last = events.at(-1)!;
      assert(last._tag === "Entry");
      assert.strictEqual(last.entry.answer, "one two");
      assert.lengthOf(events, 3);
      assert.lengthOf(requests, 2);
      assert.match(requests[1]!, /\./);
    }),
    change,
  );
});

it.live("a stream fails with the reason that the server gives", () =>
  withClient(
    Effect.gen(function* () {
      const client = yield* ParleyClient;
      const stream = client.stream({ payload: { query: "broken" } });
      const error = yield* Effect.flip(Stream.runDrain(stream));
      assert.deepEqual((error as ParleyError).reason, { _tag: "ANSWER_UNAVAILABLE" });
    }),
  ),
);
