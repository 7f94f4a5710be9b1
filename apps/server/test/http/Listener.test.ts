/**
 * The listener sends complete responses in the order of their requests. Whatever the application does, a client can
 * neither crash the server nor block it.
 */
import { assert, it } from "@effect/vitest";
import { Duration, Effect, Exit, Fiber, Logger, Scope, Stream } from "effect";
import { HttpServerRequest, HttpServerResponse } from "effect/http";
import { once, type EventEmitter } from "node:events";
import { connect, Server, type Socket, type TcpNetConnectOpts } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { vi } from "vitest";
import { listen, type ListenOptions } from "../../src/http/Listener.ts";
import { Lifecycle } from "../../src/Lifecycle.ts";

/**
 * `/late` responds after one and a half seconds, `/slow` streams five pieces in a quarter of a second, and a POST to `/` returns its body. `events` collects these
 * bodies, `piece` for each piece of `/pieces`, and `endless` when a request for `/endless` ends.
 */
const makeApp = (events: Array<string>) =>
  Effect.gen(function* () {
    const request = yield* HttpServerRequest.HttpServerRequest;
    if (request.url === "/endless") {
      return yield* Effect.never.pipe(
        Effect.onExit(() => Effect.sync(() => events.push("endless"))),
        Effect.interruptible,
      );
    }
    if (request.url === "/late")
      return yield* Effect.delay(Effect.succeed(HttpServerResponse.text("late")), "1500 millis");
    if (request.url === "/pieces") {
      const pieces = Stream.range(1, 1000, 1).pipe(
        Stream.map(() => new Uint8Array(65_536)),
        Stream.tap(() => Effect.sync(() => events.push("piece"))),
      );
      return HttpServerResponse.stream(pieces);
    }
    if (request.url === "/slow") {
      const letters = Stream.tap(Stream.make("a", "b", "c", "d", "e"), () =>
        Effect.sleep("50 millis"),
      );
      return HttpServerResponse.stream(Stream.encodeText(letters));
    }
    if (request.url === "/big")
      return HttpServerResponse.stream(
        Stream.map(Stream.range(1, 20), () => new Uint8Array(65_536)),
      );
    if (request.url === "/large") return HttpServerResponse.uint8Array(new Uint8Array(20_000_000));
    if (request.method !== "POST") return HttpServerResponse.text(request.url);
    if (request.url === "/early") return HttpServerResponse.text("early", { status: 403 });
    const body = yield* request.text;
    events.push(body);
    return HttpServerResponse.text(body, { status: 201 });
  }).pipe(Effect.catchCause(() => Effect.succeed(HttpServerResponse.empty({ status: 500 }))));

const start = Effect.fnUntraced(function* (options: Partial<ListenOptions> = {}) {
  const events: Array<string> = [];
  const scope = yield* Scope.make();
  const listenSpy = vi.spyOn(Server.prototype, "listen");
  const origin = yield* listen(makeApp(events), {
    host: "127.0.0.1",
    port: 0,
    grace: Duration.seconds(20),
    ...options,
  }).pipe(
    Scope.provide(scope),
    Effect.provideService(Lifecycle, { phase: "serving", signal: null }),
  );
  const server = listenSpy.mock.contexts[0] as Server;
  listenSpy.mockRestore();
  const stop = Scope.close(scope, Exit.void);
  yield* Effect.addFinalizer(() => stop);
  return { events, port: Number(new URL(origin).port), server, stop };
});
const startServer = start();

/** Opens a connection and sends the bytes. */
const open = (port: number, bytes = "", options: Partial<TcpNetConnectOpts> = {}) => {
  const socket = connect({ port, host: "127.0.0.1", ...options }).on("error", () => {});
  socket.write(bytes);
  return socket;
};

const eventOf = (emitter: EventEmitter, name: string) =>
  Effect.promise(() => once(emitter, name) as Promise<Array<any>>);
const until = (condition: () => boolean) => Effect.promise(() => vi.waitUntil(condition, 20_000));

/** How long an effect takes. */
const millisOf = <A, E, R>(effect: Effect.Effect<A, E, R>) =>
  Effect.map(Effect.timed(effect), ([duration]) => Duration.toMillis(duration));

/** Sends the pieces with a pause after each, and returns all that the server sends until it closes the connection. */
const exchange = (port: number, ...pieces: ReadonlyArray<string>) =>
  Effect.promise(async () => {
    const socket = open(port).setEncoding("latin1");
    const text = socket.toArray();
    for (const piece of pieces) {
      socket.write(piece);
      await sleep(80);
    }
    return (await text).join("");
  });

/** Half-closes the connection after the request, and returns everything that the server sends. */
const halfClose = (port: number, request: string) =>
  Effect.promise(async () => {
    const socket = open(port, "", { allowHalfOpen: true }).setEncoding("latin1").end(request);
    return (await socket.toArray()).join("");
  });

/** Reads the rest of a response from `/large`, and checks its size. */
const expectLarge = Effect.fnUntraced(function* (socket: Socket) {
  const received = Buffer.concat(yield* Effect.promise(() => socket.toArray()));
  assert.strictEqual(received.length - received.indexOf("\r\n\r\n") - 4, 20_000_000);
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

it.live("the cookies of a site with many subdomains may fill 32 KiB of headers", () =>
  Effect.gen(function* () {
    const { port } = yield* startServer;
    const cookie = (length: number) => `Connection: close\r\nCookie: a=${"x".repeat(length)}\r\n`;
    assert.deepStrictEqual(statusesOf(yield* exchange(port, get("/", cookie(32_000)))), [200]);
    const refusal = yield* exchange(port, get("/", cookie(34_000)));
    assert.deepStrictEqual(statusesOf(refusal), [400]);
    assert.include(refusal, "HEADERS_TOO_LARGE");
  }),
);

for (const [what, pieces, statuses] of [
  ["a request, then a bad chunk", [post("/", "x") + badChunk("/")], [201, 400]],
  ["a slow request, then a bad chunk", [get("/slow"), badChunk("/")], [200, 400]],
  ["a slow request, then an upgrade", [get("/slow"), upgrade], [200, 400]],
  ["a slow request, then a tunnel", [get("/slow"), tunnel], [200, 400]],
  [
    "two requests, then nonsense twice",
    [get("/slow") + get("/"), nonsense, nonsense],
    [200, 200, 400],
  ],
  ["a slow last request, then another", [get("/slow", "Connection: close\r\n"), get("/")], [200]],
  ["a request without a Host, then another", [`GET / HTTP/1.1\r\n\r\n${post("/", "y")}`], [400]],
  ["an unsupported Expect, then another", [get("/", "Expect: a\r\n") + post("/", "y")], [400]],
  ["an early response, then a bad chunk", [badChunk("/early").slice(0, -4), "zz\r\n"], [403]],
] as const)
  it.live(
    `pipelined requests are answered in order until a response closes the connection: ${what}`,
    () =>
      Effect.gen(function* () {
        const { events, port } = yield* startServer;
        const text = yield* exchange(port, ...pieces);
        assert.deepStrictEqual(statusesOf(text), [...statuses], text);
        if (pieces[0]!.includes("/slow"))
          assert.match(text, /a\r\n1\r\nb\r\n1\r\nc\r\n1\r\nd\r\n1\r\ne\r\n0\r\n/);
        assert.notInclude(events, "y", "a request behind the last is not handled");
      }),
  );

for (const [what, bytes] of [
  ["sends nothing", ""],
  ["is in the middle of its second request head", `${get("/")}GET /`],
  [
    "was answered before its body arrived",
    `POST /early HTTP/1.1\r\n${host}Content-Length: 9\r\n\r\na`,
  ],
] as const)
  it.live(`a listener that closes does not wait for a client that ${what}`, () =>
    Effect.gen(function* () {
      const { port, stop } = yield* startServer;
      const socket = open(port, bytes).resume();
      yield* Effect.sleep("100 millis");
      assert.isBelow(yield* millisOf(stop), 10_000, "the grace is twenty seconds");
      yield* until(() => socket.closed);
    }),
  );

it.live("a listener that closes still sends the rest of a large response to a slow client", () =>
  Effect.gen(function* () {
    const { port, stop } = yield* startServer;
    const socket = open(port, get("/large"));
    yield* eventOf(socket, "readable");
    const stopping = yield* Effect.forkChild(stop);
    yield* Effect.sleep("200 millis");
    yield* expectLarge(socket);
    yield* Fiber.join(stopping);
  }),
);

it.live("a listener that closes waits no longer than its grace for the rest of a body", () =>
  Effect.gen(function* () {
    const { port, server, stop } = yield* start({ grace: Duration.seconds(1) });
    const received = eventOf(server, "request");
    const socket = open(port, post("/", "four").slice(0, -1)).resume();
    yield* received;
    const millis = yield* millisOf(stop);
    assert.isTrue(millis > 900 && millis < 5000, `${millis} ms`);
    yield* until(() => socket.closed);
  }),
);

for (const [what, request] of [
  ["an upgrade", upgrade],
  ["nonsense", nonsense],
] as const)
  it.live(
    `a client that is rejected for ${what} can neither hold its connection nor keep the listener from closing`,
    () =>
      Effect.gen(function* () {
        const { port, stop } = yield* startServer;
        const reset = open(port, request).pause();
        yield* Effect.sleep("50 millis");
        // The response is unread, so this resets the connection.
        reset.destroy();
        const socket = open(port, request, { allowHalfOpen: true }).resume();
        yield* Effect.sleep("50 millis");
        assert.deepStrictEqual(statusesOf(yield* exchange(port, last)), [200]);
        assert.isBelow(yield* millisOf(stop), 10_000);
        socket.destroy();
      }),
  );

it.live(
  "a client is disconnected once it has sent over a hundred requests after a rejected one, and not before",
  () =>
    Effect.gen(function* () {
      const { port } = yield* startServer;
      for (const count of [100, 101]) {
        const options = { allowHalfOpen: true, noDelay: true };
        const socket = open(port, "GET / HTTP/1.1\r\n\r\n", options).resume();
        yield* eventOf(socket, "end");
        socket.write(get("/").repeat(count));
        // The server sends nothing more. Only writing shows whether the connection is still open.
        for (let n = 0; n < 3; n++) {
          yield* Effect.sleep("50 millis");
          socket.write("\r\n");
        }
        assert.strictEqual(socket.destroyed, count > 100, `${count} requests`);
        socket.destroy();
      }
    }),
);

it.live(
  "a client is disconnected once over a hundred of its requests await responses, and not before",
  () =>
    Effect.gen(function* () {
      const { events, port } = yield* startServer;
      const ninetyNine = get("/").repeat(99);
      const socket = open(port).setEncoding("latin1");
      let text = "";
      socket.on("data", (data: string) => (text += data));
      for (const count of [100, 200]) {
        socket.write(ninetyNine + get("/"));
        yield* until(() => statusesOf(text).length === count);
      }
      socket.write(get("/slow") + ninetyNine + post("/", "x").repeat(1000));
      yield* until(() => socket.closed);
      assert.deepStrictEqual([statusesOf(text).length, events], [200, []]);
      assert.match(text, /^keep-alive: timeout=65\r$/im);
      assert.deepStrictEqual(statusesOf(yield* exchange(port, last)), [200]);
    }),
);

it.live("a client whose tunnel is refused still receives earlier large responses in full", () =>
  Effect.gen(function* () {
    const { port } = yield* startServer;
    const text = yield* exchange(port, get("/big") + get("/big") + tunnel);
    assert.deepStrictEqual(statusesOf(text), [200, 200, 400]);
    assert.isAbove(text.length, 40 * 65_536);
  }),
);

it.live("a client that reads nothing is sent no more than the system can buffer", () =>
  Effect.gen(function* () {
    const { events, port } = yield* startServer;
    const socket = open(port, get("/pieces")).pause();
    yield* until(() => events.length > 0);
    yield* Effect.sleep("500 millis");
    socket.destroy();
    assert.isBelow(events.length, 500, "of a thousand pieces");
  }),
);

it.live("a rejected client receives its response however much more it sends", () =>
  Effect.gen(function* () {
    const { port } = yield* startServer;
    const much = "x".repeat(3_000_000);
    const text = yield* exchange(
      port,
      `POST / HTTP/1.1\r\nContent-Length: ${much.length}\r\n\r\n`,
      much,
    );
    assert.deepStrictEqual(statusesOf(text), [400]);
  }),
);

const ask = (target: string, onDisconnect?: string) =>
  `POST ${target} HTTP/1.1\r\n${host}${onDisconnect === undefined ? "" : `On-Disconnect: ${onDisconnect}\r\n`}Content-Length: 0\r\n\r\n`;

for (const [what, request, statuses, onDisconnect] of [
  ["a POST", ask("/slow"), [200], "finish"],
  ["a POST with On-Disconnect: finish", ask("/slow", "Finish"), [200], "cancel"],
  ["two requests", ask("/slow") + get("/slow"), [200, 200], "finish"],
  ["a GET that takes less than a second", get("/slow"), [200], "finish"],
] as const)
  it.live(`a client that closes its sending half receives the whole response to ${what}`, () =>
    Effect.gen(function* () {
      const { port } = yield* start({ onDisconnect });
      const text = yield* halfClose(port, request);
      assert.deepStrictEqual(statusesOf(text), [...statuses]);
      assert.match(text, /e\r\n0\r\n\r\n$/);
    }),
  );

it.live("a client that closes its sending half may take longer than a second to read", () =>
  Effect.gen(function* () {
    const { port } = yield* startServer;
    const socket = open(port, "", { allowHalfOpen: true }).end(get("/large"));
    yield* eventOf(socket, "readable");
    yield* Effect.sleep("1500 millis");
    yield* expectLarge(socket);
  }),
);

for (const [what, request, onDisconnect] of [
  ["a POST with On-Disconnect: cancel", ask("/endless", "Cancel"), "finish"],
  ["a POST to a server that cancels on disconnect", ask("/endless"), "cancel"],
] as const)
  it.live(`a client that closes its sending half counts as disconnected during ${what}`, () =>
    Effect.gen(function* () {
      const { events, port } = yield* start({ onDisconnect });
      assert.strictEqual(yield* halfClose(port, request), "");
      yield* until(() => events.length === 1);
    }),
  );

it.live("a half-closed GET that takes longer than a second is answered", () =>
  Effect.gen(function* () {
    const { port } = yield* startServer;
    const text = yield* halfClose(port, get("/late"));
    assert.deepStrictEqual(statusesOf(text), [102, 200]);
    assert.match(text, /\r\n\r\nlate$/);
    const pipelined = yield* halfClose(port, get("/slow") + get("/late") + get("/late"));
    assert.deepStrictEqual(statusesOf(pipelined), [200, 102, 200, 200]);
    // HTTP/1.0 has no interim responses.
    const old = yield* halfClose(port, "GET /late HTTP/1.0\r\n\r\n");
    assert.deepStrictEqual(statusesOf(old), [200]);
  }),
);

it.live("a GET ends once its client has closed the whole connection", () =>
  Effect.gen(function* () {
    const { events, port } = yield* startServer;
    const socket = open(port, get("/endless"));
    yield* Effect.sleep("100 millis");
    socket.destroy();
    yield* until(() => events.length === 1);
  }),
);

/** Opens a connection, and returns the server's side of it, too. */
const accept = Effect.fnUntraced(function* (server: Server, port: number) {
  const accepted = once(server, "connection");
  const socket = open(port).setEncoding("latin1");
  const [[peer]] = yield* Effect.promise(() => Promise.all([accepted, once(socket, "connect")]));
  return { socket, peer: peer as Socket };
});
const timeout = Object.assign(new Error(), { code: "ERR_HTTP_REQUEST_TIMEOUT" });

it.live(
  "a request that is complete when its timeout fires is answered, and so is a first request that starts late",
  () =>
    Effect.gen(function* () {
      const { port, server } = yield* startServer;
      for (const [early, late, statuses] of [
        ["", last, [200]],
        [post("/", "four").slice(0, -1), "r", [201]],
        [last.slice(0, 9), last.slice(9, -2), [400]],
        [post("/", "four").slice(0, -2), "u", [400]],
      ] as const) {
        const { peer, socket } = yield* accept(server, port);
        let text = "";
        socket.on("data", (data: string) => (text += data));
        if (early !== "") {
          socket.write(early);
          yield* Effect.sleep("50 millis");
        }
        // The event loop has not read these bytes yet when Node's timer finds that the request is late.
        socket.write(late);
        server.emit("clientError", timeout, peer);
        yield* until(() => text.includes("\r\n\r\n"));
        socket.destroy();
        assert.deepStrictEqual(statusesOf(text), [...statuses], early + late);
      }
      const { peer, socket } = yield* accept(server, port);
      server.emit("clientError", timeout, peer);
      yield* Effect.sleep("50 millis");
      socket.write(last);
      const text = yield* Effect.promise(() => socket.toArray());
      assert.deepStrictEqual(statusesOf(text.join("")), [200]);
    }),
);

it.live(
  "a connection without a request is closed some time after its timeout fires, even if it sends an empty line",
  () => {
    const timerSpy = vi.spyOn(globalThis, "setTimeout");
    return Effect.gen(function* () {
      const { port, server } = yield* startServer;
      const { peer, socket } = yield* accept(server, port);
      const text = socket.toArray();
      server.emit("clientError", timeout, peer);
      yield* Effect.sleep("50 millis");
      socket.write("\r\n");
      yield* until(() => peer.bytesRead === 2);
      const [closeUnused] = timerSpy.mock.calls.find(([, millis]) => millis === 55_000)!;
      closeUnused();
      // Node's own timeout, which in this test has yet to fire, would send a response.
      assert.deepStrictEqual(yield* Effect.promise(() => text), []);
    }).pipe(Effect.ensuring(Effect.sync(() => timerSpy.mockRestore())));
  },
);

it.live(
  "connections on which nothing arrives are replaced by new ones, and those in use are not",
  () =>
    Effect.gen(function* () {
      const { port } = yield* start({ mostConnections: 4 });
      const inUse = open(port, get("/endless"));
      yield* eventOf(inUse, "connect");
      const idle = open(port, get("/"));
      yield* eventOf(idle, "data");
      const silent: Array<Socket> = [];
      for (let n = 0; n < 20; n++) {
        silent.push(open(port));
        yield* eventOf(silent[n]!, "connect");
      }
      yield* until(() => silent.filter(({ closed }) => closed).length === 18);
      idle.write(get("/"));
      yield* eventOf(idle, "data");
      assert.deepStrictEqual([inUse.closed, idle.closed], [false, false]);
      // Without a silent connection, an idle one is replaced.
      const served = [open(port, get("/endless")), open(port, get("/endless"))];
      yield* Effect.sleep("50 millis");
      served.push(open(port, get("/endless")));
      yield* until(() => idle.closed);
      assert.isFalse([inUse, ...served].some(({ closed }) => closed));
      for (const socket of [inUse, ...silent, ...served]) socket.destroy();
    }),
);

it.live("an error on the listener itself is logged, and the server keeps running", () => {
  const logs: Array<string> = [];
  const logger = Logger.make(({ message }) => void logs.push(String(message)));
  return Effect.gen(function* () {
    const { port, server } = yield* startServer;
    for (let n = 0; n < 2; n++) server.emit("error", new Error("accept EMFILE"));
    assert.deepStrictEqual(statusesOf(yield* exchange(port, last)), [200]);
    const line = `Listener error on http://127.0.0.1:${port}: accept EMFILE`;
    assert.deepStrictEqual(logs, [line, line]);
  }).pipe(Effect.provide(Logger.layer([logger])));
});
