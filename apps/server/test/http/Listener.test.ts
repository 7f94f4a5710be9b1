/**
 * What the listener does with the bytes of a connection, whatever the application is: answers go out in the order
 * of their requests, each whole, and a client can neither end the server nor hold it.
 */
import { assert, describe, it } from "@effect/vitest";
import { Duration, Effect, Exit, Logger, Scope, Stream } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";
import { once } from "node:events";
import { connect, Server } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { vi } from "vitest";
import { listen } from "../../src/http/Listener.ts";

/** `/slow` streams five pieces in a quarter of a second; a POST notes its body and tells it. */
const makeApp = (made: Array<string>) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest;
    if (request.url === "/slow") {
      const pieces = Stream.fromIterable(["a", "b", "c", "d", "e"]).pipe(
        Stream.tap(() => Effect.sleep("50 millis")),
        Stream.encodeText,
      );
      return HttpServerResponse.stream(pieces);
    }
    if (request.url === "/big") {
      return HttpServerResponse.stream(
        Stream.map(Stream.range(1, 20), () => new Uint8Array(65_536)),
      );
    }
    if (request.method !== "POST") return HttpServerResponse.text(request.url);
    if (request.url === "/early") return HttpServerResponse.text("early", { status: 403 });
    const body = yield* request.text;
    made.push(body);
    return HttpServerResponse.text(body, { status: 201 });
  }).pipe(Effect.catchCause(() => Effect.succeed(HttpServerResponse.empty({ status: 500 }))));

const started = Effect.gen(function* () {
  const made: Array<string> = [];
  const scope = yield* Scope.make();
  const port = yield* listen(makeApp(made), {
    host: "127.0.0.1",
    port: 0,
    grace: Duration.seconds(20),
  }).pipe(Scope.provide(scope));
  const stop = Scope.close(scope, Exit.void);
  yield* Effect.addFinalizer(() => stop);
  return { made, port, stop };
});

/** Sends the pieces with pauses, and gives all that came until the end. */
const said = (port: number, ...pieces: ReadonlyArray<string>) =>
  Effect.promise(async () => {
    const socket = connect(port, "127.0.0.1");
    let text = "";
    socket.setEncoding("latin1").on("data", (data: string) => (text += data));
    const ended = once(socket, "close");
    for (const piece of pieces) {
      socket.write(piece);
      await sleep(80);
    }
    await ended;
    return text;
  });

const statusesOf = (text: string) =>
  [...text.matchAll(/HTTP\/1\.1 (\d+)/g)].map(([, status]) => Number(status));

const host = "Host: a\r\n";
const get = (target: string, more = "") => `GET ${target} HTTP/1.1\r\n${host}${more}\r\n`;
const post = (target: string, body: string) =>
  `POST ${target} HTTP/1.1\r\n${host}Content-Length: ${body.length}\r\n\r\n${body}`;
const badChunk = (target: string) =>
  `POST ${target} HTTP/1.1\r\n${host}Transfer-Encoding: chunked\r\n\r\nzz\r\n`;
const upgrade = get("/", "Connection: Upgrade\r\nUpgrade: websocket\r\n");
const tunnel = "CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n";
const nonsense = "nonsense\r\n\r\n";
const last = get("/last", "Connection: close\r\n");

describe("answers to requests that come together", () => {
  for (const [what, pieces, statuses] of [
    ["one that is well and one with a bad chunk", [post("/", "x") + badChunk("/")], [201, 400]],
    ["a slow one and, later, a bad chunk", [get("/slow"), badChunk("/")], [200, 400]],
    ["a slow one and, later, an upgrade", [get("/slow"), upgrade], [200, 400]],
    ["a slow one and, later, a tunnel", [get("/slow"), tunnel], [200, 400]],
    ["a slow one and, later, nonsense", [get("/slow"), nonsense], [200, 400]],
    [
      "a slow one, one that is well, and nonsense",
      [get("/slow") + get("/") + nonsense],
      [200, 200, 400],
    ],
    ["one that is well, and nonsense twice", [get("/"), nonsense, nonsense], [200, 400]],
    ["a slow last one and another", [get("/slow", "Connection: close\r\n"), get("/")], [200]],
    ["one without a Host, and another", [`GET / HTTP/1.1\r\n\r\n${post("/", "y")}`], [400]],
    ["two Hosts, and another", [get("/", host) + post("/", "y")], [400]],
    ["an expectation, and another", [get("/", "Expect: a\r\n") + post("/", "y")], [400]],
    [
      "an expectation with a bad chunk",
      [`POST / HTTP/1.1\r\n${host}Expect: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n`],
      [400],
    ],
    [
      "one that was answered early, then a bad chunk",
      [badChunk("/early").slice(0, -4), "zz\r\n"],
      [403],
    ],
  ] as const)
    it.live(`${what}: ${statuses.join(", ")}`, () =>
      Effect.gen(function* () {
        const { made, port } = yield* started;
        const text = yield* said(port, ...pieces);
        assert.deepStrictEqual(statusesOf(text), [...statuses], text);
        if (pieces[0]!.includes("/slow"))
          assert.match(text, /a\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n1\r\ne\r\n0\r\n/);
        assert.notInclude(made, "y", "what came after the last is not carried out");
      }).pipe(Effect.scoped),
    );
});

describe("the server's end", () => {
  for (const [what, bytes] of [
    ["says nothing", ""],
    ["is in the middle of a head", "GET / HT"],
    ["is in the middle of its second head", `${get("/")}GET /`],
    [
      "was answered before its body came",
      `POST /early HTTP/1.1\r\n${host}Content-Length: 9\r\n\r\na`,
    ],
  ] as const)
    it.live(`does not wait for a client that ${what}`, () =>
      Effect.gen(function* () {
        const { port, stop } = yield* started;
        const socket = connect(port, "127.0.0.1")
          .on("error", () => {})
          .resume();
        const closed = new Promise((resolve) => socket.once("close", resolve));
        socket.write(bytes);
        yield* Effect.sleep("100 millis");
        const before = performance.now();
        yield* stop;
        assert.isBelow(performance.now() - before, 10_000, "the grace is twenty seconds");
        yield* Effect.promise(() => closed);
      }).pipe(Effect.scoped),
    );
});

describe("a client that was refused", () => {
  for (const [what, request] of [
    ["an upgrade", upgrade],
    ["nonsense", nonsense],
    ["no Host", "GET / HTTP/1.1\r\n\r\n"],
  ] as const) {
    it.live(`${what}: may reset its connection`, () =>
      Effect.gen(function* () {
        const { port } = yield* started;
        for (let n = 0; n < 5; n++) {
          const socket = connect(port, "127.0.0.1").on("error", () => {});
          socket.pause().write(request);
          yield* Effect.sleep("50 millis");
          // With its answer unread, which resets the connection.
          socket.destroy();
        }
        yield* Effect.sleep("50 millis");
        assert.deepStrictEqual(statusesOf(yield* said(port, last)), [200]);
      }).pipe(Effect.scoped),
    );

    it.live(`${what}: cannot hold its connection, nor the server's end`, () =>
      Effect.gen(function* () {
        const { port, stop } = yield* started;
        const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
        socket.on("error", () => {}).resume();
        const closed = new Promise((resolve) => socket.once("close", resolve));
        socket.write(request);
        const before = performance.now();
        yield* Effect.promise(() => sleep(50));
        yield* stop;
        assert.isBelow(performance.now() - before, 10_000);
        socket.destroy();
        yield* Effect.promise(() => closed);
      }).pipe(Effect.scoped),
    );
  }

  for (const [what, request] of [
    ["no Host", "GET / HTTP/1.1\r\n\r\n"],
    ["an expectation", get("/", "Expect: a\r\n")],
  ] as const)
    it.live(`${what}: cannot keep the others waiting by requests that nobody answers`, () =>
      Effect.gen(function* () {
        const { port } = yield* started;
        const socket = connect(port, "127.0.0.1").on("error", () => {});
        socket.resume().write(request + get("/").repeat(400_000));
        yield* Effect.sleep("300 millis");
        assert.deepStrictEqual(statusesOf(yield* said(port, last)), [200]);
        assert.isAbove(socket.writableLength, 0, "not all of it is read");
        socket.destroy();
      }).pipe(Effect.scoped),
    );

  it.live("gets great answers that came before a tunnel whole", () =>
    Effect.gen(function* () {
      const { port } = yield* started;
      const text = yield* said(port, get("/big") + get("/big") + tunnel);
      assert.deepStrictEqual(statusesOf(text), [200, 200, 400]);
      assert.isAbove(text.length, 40 * 65_536);
    }).pipe(Effect.scoped),
  );

  it.live("gets its answer however much it still sends", () =>
    Effect.gen(function* () {
      const { port } = yield* started;
      const much = "x".repeat(3_000_000);
      const text = yield* said(
        port,
        `POST / HTTP/1.1\r\nContent-Length: ${much.length}\r\n\r\n`,
        much,
      );
      assert.deepStrictEqual(statusesOf(text), [400]);
    }).pipe(Effect.scoped),
  );
});

it.live("what the listener itself meets after it began is told, and ends nothing", () => {
  const logs: Array<string> = [];
  const logger = Logger.make(({ message }) => void logs.push(String(message)));
  const begun = vi.spyOn(Server.prototype, "listen");
  return Effect.gen(function* () {
    const { port } = yield* started;
    const [server] = begun.mock.contexts as ReadonlyArray<Server>;
    for (let n = 0; n < 2; n++) server!.emit("error", new Error("accept EMFILE"));
    assert.deepStrictEqual(statusesOf(yield* said(port, last)), [200]);
    const told = `The listener on 127.0.0.1:${port} met an error: accept EMFILE`;
    assert.deepStrictEqual(logs, [told, told]);
  }).pipe(
    Effect.scoped,
    Effect.provide(Logger.layer([logger])),
    Effect.ensuring(Effect.sync(() => begun.mockRestore())),
  );
});
