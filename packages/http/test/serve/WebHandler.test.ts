import { expect, it } from "@effect/vitest";
import { Access, AnswerUnavailable, Asking, ChatbotNotFound, Chats } from "@parley/core";
import { makeWebHandler } from "@parley/http";
import { Deferred, Effect, Fiber, Layer, Redacted, Stream } from "effect";
import { served, usage } from "../TestHandler.ts";

it("tells whoever waits for it, and every request, what the layer fails with", async () => {
  const failing = Layer.effectContext<Access | Asking | Chats, string, never>(
    Effect.delay(Effect.fail("no database"), "10 millis"),
  );
  const { dispose, handler, ready } = makeWebHandler(failing);
  await expect(ready).rejects.toThrow("no database");
  await expect(handler(new Request("http://localhost/api/details"))).rejects.toThrow("no database");
  await dispose();
});

it.live("answers what is under way when it is disposed, and refuses what comes later", () =>
  Effect.gen(function* () {
    const [asked, answer] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()];
    const { dispose, send } = yield* served(() =>
      Stream.fromEffect(
        Deferred.succeed(asked, undefined).pipe(
          Effect.andThen(Deferred.await(answer)),
          Effect.as({ _tag: "Delta", text: "late" } as const),
        ),
      ).pipe(Stream.concat(Stream.make({ _tag: "Usage", usage } as const))),
    );
    const body = JSON.stringify({ query: "q" });
    const asking = yield* Effect.forkChild(send("/ask", { method: "POST", body }));
    yield* Deferred.await(asked);
    // One that is not in the core yet, either.
    const listing = yield* Effect.forkChild(send("/api/chats"), { startImmediately: true });
    const disposing = yield* Effect.forkChild(Effect.promise(dispose), { startImmediately: true });
    const refused = yield* send("/api/chats");
    expect(yield* Effect.promise(() => refused.json())).toMatchObject({
      status: 500,
      message: "STORAGE_UNAVAILABLE",
    });
    const head = yield* send("/api/chats", { method: "HEAD" });
    expect([head.status, yield* Effect.promise(() => head.text())]).toEqual([500, ""]);
    expect(head.headers.get("x-request-id")).not.toBeNull();
    expect(disposing.pollUnsafe()).toBeUndefined();
    yield* Deferred.succeed(answer, undefined);
    expect((yield* Fiber.join(asking)).status).toBe(201);
    expect((yield* Fiber.join(listing)).status).toBe(200);
    yield* Fiber.join(disposing);
  }).pipe(Effect.scoped),
);

it("ends the building of its layer when it is disposed, whatever that waits for", async () => {
  let isOver = false;
  const endless = Layer.effectContext<Access | Asking | Chats, never, never>(
    Effect.onInterrupt(Effect.never, () => Effect.sync(() => (isOver = true))),
  );
  const { dispose, handler, ready } = makeWebHandler(endless);
  const answering = handler(new Request("http://localhost/api/details"));
  await dispose();
  expect(isOver).toBe(true);
  await expect(ready).rejects.toThrow();
  expect((await answering).status).toBe(500);
});

it.live("tells the log of an answer that fails when its client has hung up", () =>
  Effect.gen(function* () {
    const broken = new AnswerUnavailable({ reason: "cut off" });
    for (const accept of ["application/json", "text/event-stream"]) {
      const [asked, hungUp] = [yield* Deferred.make<void>(), yield* Deferred.make<void>()];
      const { logged, send } = yield* served(() =>
        Stream.fromEffect(
          Deferred.succeed(asked, undefined).pipe(
            Effect.andThen(Deferred.await(hungUp)),
            Effect.andThen(Effect.fail(broken)),
          ),
        ),
      );
      const leaving = new AbortController();
      const asking = yield* send("/ask", {
        method: "POST",
        body: JSON.stringify({ query: "q" }),
        headers: { accept },
        signal: leaving.signal,
      }).pipe(Effect.exit, Effect.forkChild);
      yield* Deferred.await(asked);
      leaving.abort();
      yield* Fiber.join(asking);
      expect(logged).toEqual([]);
      yield* Deferred.succeed(hungUp, undefined);
      while (logged.length === 0) yield* Effect.sleep("10 millis");
      expect(logged).toHaveLength(1);
      expect(logged[0]).toContain("cut off");
    }
  }).pipe(Effect.scoped),
);

it.live("the fragment of an address is its client's own", () =>
  Effect.gen(function* () {
    const { send } = yield* served(() => Stream.empty);
    yield* send("/api/chats", { method: "POST", body: '{"userRef":"a"}' });
    for (const address of ["/api/chats#top", "/api/chats?limit=1#top", "/api/chats#?limit=0"]) {
      const response = yield* send(address);
      expect([address, response.status]).toEqual([address, 200]);
    }
    const theirs = yield* send("/api/chats?userRef=a#b");
    expect(yield* Effect.promise(() => theirs.json())).toMatchObject({ meta: { total: 1 } });
  }).pipe(Effect.scoped),
);

it.live("answers a key whose chatbot was deleted meanwhile as any rejected key", () =>
  Effect.gen(function* () {
    const deleted = new ChatbotNotFound({ chatbot: 1 });
    const { key, layer } = yield* served(() => Stream.empty);
    const services = Layer.mergeAll(
      layer,
      Layer.effect(
        Chats,
        Effect.map(Chats, (chats) => ({ ...chats, create: () => deleted })),
      ),
      Layer.succeed(Asking, { ask: () => deleted, stream: () => Stream.fail(deleted) }),
    ).pipe(Layer.provide(layer));
    const { dispose, handler } = makeWebHandler(services);
    const send = (path: string, headers: Record<string, string>) =>
      Effect.promise(async () => {
        const body = JSON.stringify({ query: "q" });
        const type = { "content-type": "application/json" };
        const request = { method: "POST", body, headers: { ...type, ...headers } };
        const response = await handler(new Request(`http://parley.test${path}`, request));
        return [response.status, await response.text()];
      });
    const rejected = yield* send("/ask", { "x-api-key": "prl_" });
    expect(rejected[0]).toBe(401);
    const valid = { "x-api-key": Redacted.value(key) };
    expect(yield* send("/api/chats", valid)).toEqual(rejected);
    expect(yield* send("/ask", valid)).toEqual(rejected);
    expect(yield* send("/ask", { ...valid, accept: "text/event-stream" })).toEqual(rejected);
    yield* Effect.promise(dispose);
  }).pipe(Effect.scoped),
);
