import { expect, it } from "@effect/vitest";
import { Access, Asking, AskLimits, ChatbotId, Chats } from "@parley/core";
import {
  ArgumentInvalid,
  ChatArchive,
  ChatbotDirectory,
  ChatbotNotFound,
  StorageUnavailable,
} from "@parley/core/ports";
import { openParley } from "@parley/core/promise";
import { makeWebHandler } from "@parley/http";
import { toNodeHandler } from "@parley/http/node";
import { layerMemory, memory } from "@parley/store-memory";
import { Context, Deferred, Effect, Fiber, Layer, Redacted, Stream } from "effect";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { makeTestHandler, usage } from "../TestHandler.ts";

/** A POST of a body of JSON with this key. */
const postOf = (key: string, body: object, headers: Record<string, string> = {}) => ({
  method: "POST",
  headers: { "x-api-key": key, "content-type": "application/json", ...headers },
  body: JSON.stringify(body),
});

it("if the layer fails, `ready` and every request reject with its error", async () => {
  const failing = Layer.effectContext<Access | Asking | Chats, string, never>(
    Effect.delay(Effect.fail("no database"), "10 millis"),
  );
  const { dispose, handler, ready } = makeWebHandler(failing);
  await expect(ready).rejects.toThrow("no database");
  await expect(handler(new Request("http://localhost/api/details"))).rejects.toThrow("no database");
  await dispose();
});

it.live("dispose waits for the requests in progress, and later requests are refused", () =>
  Effect.gen(function* () {
    const [arrival, answer] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()];
    const { dispose, send } = yield* makeTestHandler(() =>
      Stream.fromEffect(
        Deferred.succeed(arrival, undefined).pipe(
          Effect.andThen(Deferred.await(answer)),
          Effect.as({ _tag: "Delta", text: "late" } as const),
        ),
      ).pipe(Stream.concat(Stream.make({ _tag: "Usage", usage } as const))),
    );
    const body = JSON.stringify({ query: "q" });
    const asking = yield* Effect.forkChild(send("/ask", { method: "POST", body }));
    yield* Deferred.await(arrival);
    // A request that has not reached the core yet.
    const listing = yield* Effect.forkChild(send("/api/chats"), { startImmediately: true });
    const disposing = yield* Effect.forkChild(Effect.promise(dispose), { startImmediately: true });
    const refused = yield* send("/api/chats");
    expect(yield* Effect.promise(() => refused.json())).toMatchObject({
      status: 500,
      message: "STORAGE_UNAVAILABLE",
    });
    expect(refused.headers.get("x-request-id")).not.toBeNull();
    expect(refused.headers.get("retry-after")).toBe("2");
    expect(disposing.pollUnsafe()).toBeUndefined();
    yield* Deferred.succeed(answer, undefined);
    expect((yield* Fiber.join(asking)).status).toBe(201);
    expect((yield* Fiber.join(listing)).status).toBe(200);
    yield* Fiber.join(disposing);
  }).pipe(Effect.scoped),
);

it.live(
  "while the store is unavailable, every request with a key fails, also one for the details",
  () =>
    Effect.gen(function* () {
      let isUnavailable = false;
      const directory = Layer.effect(
        ChatbotDirectory,
        Effect.map(ChatbotDirectory, (directory) => ({
          ...directory,
          find: (id: string) =>
            isUnavailable ? new StorageUnavailable({ cause: "unavailable" }) : directory.find(id),
        })),
      );
      const store = Layer.provideMerge(directory, layerMemory);
      const handler = yield* makeTestHandler(() => Stream.empty, {}, store);
      const send = (path: string, init?: RequestInit) =>
        Effect.map(handler.send(path, init), ({ status }) => status);
      expect(yield* send("/api/details")).toBe(200);
      isUnavailable = true;
      // The process caches the look-up of a key for a second.
      yield* Effect.sleep("1100 millis");
      expect(yield* send("/api/details")).toBe(500);
      expect(yield* send("/api/chats")).toBe(500);
      expect(yield* send("/ask", { method: "POST", body: '{"query":"q"}' })).toBe(500);
    }).pipe(Effect.scoped),
);

it.live("a full server refuses an ask before it reads the ask's body", () =>
  Effect.gen(function* () {
    const { key, layer } = yield* makeTestHandler(() => Stream.empty);
    const limits = Layer.succeed(AskLimits, { ...AskLimits.defaultValue(), asks: 0 });
    const { dispose, handler } = makeWebHandler(Layer.provideMerge(layer, limits));
    let isRead = false;
    const pull = (body: ReadableStreamDefaultController) => ((isRead = true), body.close());
    const body = new ReadableStream({ pull }, { highWaterMark: 0 });
    const init = { ...postOf(Redacted.value(key), {}), body, duplex: "half" };
    const response = yield* Effect.promise(() => handler("http://parley.test/ask", init));
    expect(yield* Effect.promise(() => response.json())).toMatchObject({
      message: "SERVICE_OVERLOADED",
    });
    expect(isRead).toBe(false);
    // A rating needs the same scope, but is no ask.
    const rating = { ...init, method: "PATCH", body: "{}" };
    const rated = yield* Effect.promise(() =>
      handler("http://parley.test/api/chats/1/history/1", rating),
    );
    expect(rated.status).toBe(404);
    yield* Effect.promise(dispose);
  }).pipe(Effect.scoped),
);

it.live("if a chatbot is deleted during a request, its key is rejected like an invalid one", () =>
  Effect.gen(function* () {
    const deleted = new ChatbotNotFound({ chatbot: 1 });
    const { key, layer } = yield* makeTestHandler(() => Stream.empty);
    const services = Layer.mergeAll(
      layer,
      Layer.effect(
        Chats,
        Effect.map(Chats, (chats) => ({ ...chats, create: () => deleted })),
      ),
      Layer.mock(Asking, {
        ask: () => deleted,
        stream: () => Stream.fail(deleted),
        overloadOf: () => null,
      }),
    ).pipe(Layer.provide(layer));
    const { dispose, handler } = makeWebHandler(services);
    const send = (path: string, sent = Redacted.value(key), headers = {}) =>
      Effect.promise(async () => {
        const request = postOf(sent, { query: "q" }, headers);
        const response = await handler(new Request(`http://parley.test${path}`, request));
        return [response.status, await response.text()];
      });
    const rejected = yield* send("/ask", "prl_");
    expect(rejected[0]).toBe(401);
    expect(yield* send("/api/chats")).toEqual(rejected);
    expect(yield* send("/ask")).toEqual(rejected);
    expect(yield* send("/ask", undefined, { accept: "text/event-stream" })).toEqual(rejected);
    yield* Effect.promise(dispose);
  }).pipe(Effect.scoped),
);

it("handlers of openParley's layer pass their option context to the answerer, and the Node handler's comes first", async () => {
  const contexts: Array<unknown> = [];
  const parley = await openParley({
    store: memory(),
    answerer: ({ context }) => (contexts.push(context), "Yes."),
    log: false,
  });
  const bot = await parley.chatbot({ workspace: "Acme", name: "Support" });
  const { key } = await bot.createKey();
  const { dispose, handler } = makeWebHandler(parley.layer, {
    context: (request) => request.headers.get("cookie"),
  });
  const withSession = toNodeHandler(handler, { context: (request) => request.session });
  const server = createServer((request, response) =>
    request.url === "/ask"
      ? toNodeHandler(handler)(request, response)
      : withSession(Object.assign(request, { url: "/ask", session: { user: 7 } }), response),
  ).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  const init = postOf(key, { query: "Are you open?" }, { cookie: "a=b" });
  await handler("http://localhost/ask", init);
  await fetch(`http://127.0.0.1:${port}/ask`, init);
  await fetch(`http://127.0.0.1:${port}/session`, init);
  // A request that is not valid asks nobody.
  await handler("http://localhost/ask", { ...init, body: "{}" });
  expect(contexts).toEqual(["a=b", "a=b", { user: 7 }]);
  server.close();
  await dispose();
  // The layer and `openParley` share the store, which stays open.
  expect((await bot.chats().page()).total).toBe(3);
  await parley.close();
});

it("a context function that throws causes a 500, and the question is not asked", async () => {
  let answers = 0;
  const parley = await openParley({ store: memory(), answerer: () => `${++answers}`, log: false });
  const { key } = await (await parley.chatbot({ workspace: "A", name: "B" })).createKey();
  const { handler } = makeWebHandler(parley.layer, {
    context: () => {
      throw new Error("no session");
    },
  });
  const response = await handler("http://localhost/ask", postOf(key, { query: "q" }));
  expect([response.status, ((await response.json()) as any).message, answers]).toEqual([
    500,
    "INTERNAL_ERROR",
    0,
  ]);
  await parley.close();
});

it.live("the store keeps the ids of the requests that ask and post", () =>
  Effect.gen(function* () {
    const metadata = { found: false };
    const { key, layer } = yield* makeTestHandler(
      () => Stream.make({ _tag: "Delta", text: "a" }, { _tag: "Metadata", metadata }),
      {},
      layerMemory,
      { scopes: ["write", "ask", "post"] },
    );
    const services = yield* Layer.build(layer);
    const { handler } = makeWebHandler(Layer.succeedContext(services));
    const send = (path: string, id: string, body: object) =>
      Effect.promise(async () => {
        const init = postOf(Redacted.value(key), body, { "x-request-id": id });
        return (await (await handler(`http://localhost${path}`, init)).json()) as any;
      });
    const { data } = yield* send("/ask", "r1", { query: "q" });
    yield* send(`/api/chats/${data.chat_id}/history`, "r2", { text: "t", metadata });
    const archive = Context.get(services, ChatArchive);
    const rows = archive.feedback(ChatbotId.make(1), new Date(0), "unanswered");
    const ids = (yield* Stream.runCollect(rows)).map(({ requestId }) => requestId);
    expect(ids).toEqual(["r2", "r1"]);
  }).pipe(Effect.scoped),
);

it.live("a value that only the core rejects causes a 500, and the log names its field", () =>
  Effect.gen(function* () {
    const { key, layer, logged } = yield* makeTestHandler(() => Stream.empty);
    const refusing = Effect.map(Asking, (asking) => ({
      ...asking,
      ask: () =>
        new ArgumentInvalid({ field: "tokensPerDay", reason: "secret", message: "secret" }),
    }));
    const { handler } = makeWebHandler(
      Layer.effect(Asking, refusing).pipe(Layer.provideMerge(layer)),
    );
    const init = postOf(Redacted.value(key), { query: "q" });
    const response = yield* Effect.promise(() => handler("http://localhost/ask", init));
    expect(response.status).toBe(500);
    expect(logged.join()).toContain("The core rejected the field tokensPerDay");
    expect(logged.join()).not.toContain("secret");
  }),
);

it.live("a large page arrives intact, in chunks of at most 64 KiB", () =>
  Effect.gen(function* () {
    const text = (length: number) => `${"x".repeat(length % 2)}${"😀漢".repeat(20_000)}`;
    const { send } = yield* makeTestHandler((question) =>
      Stream.make({ _tag: "Delta", text: text(question.length) }, { _tag: "Usage", usage }),
    );
    const created = yield* send("/api/chats", { method: "POST", body: "{}" });
    const chat = (yield* Effect.promise(() => created.json())).data.id;
    for (let n = 1; n <= 10; n++) {
      const body = JSON.stringify({ chat_id: chat, query: "q".repeat(n) });
      yield* send("/ask", { method: "POST", body });
    }
    const response = yield* send(`/api/chats/${chat}/history?orderBy=id`);
    const pieces: Array<Uint8Array> = [];
    yield* Effect.promise(async () => {
      for await (const piece of response.body!) pieces.push(piece);
    });
    const bytes = Buffer.concat(pieces);
    expect(Math.max(...pieces.map(({ length }) => length))).toBe(65_536);
    expect(pieces.length).toBeGreaterThan(8);
    expect(response.headers.get("content-length")).toBe(String(bytes.length));
    const { data } = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(bytes));
    expect(data.slice(1).map(({ answer }: { readonly answer: string }) => answer)).toEqual(
      Array.from({ length: 10 }, (_, n) => text(n + 1)),
    );
  }).pipe(Effect.scoped),
);
