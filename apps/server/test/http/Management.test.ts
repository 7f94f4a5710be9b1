import { assert, it } from "@effect/vitest";
import { ChatbotDirectory, StorageUnavailable, StoreState } from "@parley/core/ports";
import { Duration, Effect, Fiber } from "effect";
import { HttpServerRequest } from "effect/http";
import { TestClock } from "effect/testing";
import { once } from "node:events";
import { connect } from "node:net";
import { listen } from "../../src/http/Listener.ts";
import { makeManagement } from "../../src/http/Management.ts";
import { Lifecycle } from "../../src/Lifecycle.ts";

const statusOf = (
  path: string,
  find: ChatbotDirectory["Service"]["find"],
  phase: Lifecycle["Service"]["phase"] = "serving",
) =>
  Effect.flatMap(makeManagement, (app) => Effect.map(app, ({ status }) => status)).pipe(
    Effect.provideService(
      HttpServerRequest.HttpServerRequest,
      HttpServerRequest.fromWeb(new Request(`http://localhost${path}`)),
    ),
    Effect.provideService(
      ChatbotDirectory,
      ChatbotDirectory.of({ find, recordUse: () => Effect.void }),
    ),
    Effect.provideService(Lifecycle, { phase, signal: null }),
  );

const answers = () => Effect.succeed(null);
const fails = () => Effect.fail(new StorageUnavailable({ cause: new Error("away") }));

it.effect("a server is ready while it serves, and while its store answers and takes writes", () =>
  Effect.gen(function* () {
    for (const [find, phase, reason, status] of [
      [answers, "serving", null, 200],
      [fails, "serving", null, 503],
      [answers, "serving", "it is a standby", 503],
      [answers, "starting", null, 503],
      [answers, "stopping", null, 503],
    ] as const) {
      const store = { readOnlyReason: Effect.succeed(reason) };
      const ready = Effect.provideService(
        statusOf("/health/ready", find, phase),
        StoreState,
        store,
      );
      assert.strictEqual(yield* ready, status, `${phase} ${reason}`);
    }
  }),
);

it.effect("readiness is 503 after two seconds when the store hangs and cannot be interrupted", () =>
  Effect.gen(function* () {
    const silent = () => Effect.uninterruptible(Effect.delay(Effect.succeed(null), "1 minute"));
    const fiber = yield* Effect.forkChild(statusOf("/health/ready", silent));
    yield* TestClock.adjust("2 seconds");
    assert.strictEqual(yield* Fiber.join(fiber), 503);
    assert.strictEqual(yield* statusOf("/health/live", silent), 200);
  }),
);

it.live(
  "every management page checks `Host` as the API does, and answers HEAD without a body",
  () =>
    Effect.gen(function* () {
      const origin = yield* listen(yield* makeManagement, {
        host: "127.0.0.1",
        port: 0,
        grace: Duration.zero,
      });
      const send = (method: string, path: string, host: string) =>
        Effect.promise(async () => {
          const socket = connect(Number(new URL(origin).port), "127.0.0.1").setEncoding("utf8");
          let text = "";
          socket.on("data", (data: string) => (text += data));
          socket.write(`${method} ${path} HTTP/1.1\r\n${host}Connection: close\r\n\r\n`);
          await once(socket, "close");
          return { status: Number(text.split(" ")[1]), body: text.split("\r\n\r\n")[1] };
        });
      const host = "Host: 127.0.0.1\r\n";
      for (const path of ["/metrics", "/health/live", "/health/ready"]) {
        for (const bad of ["", `${host}${host}`, "Host: a/b\r\n"])
          assert.strictEqual((yield* send("GET", path, bad)).status, 400, `${path} ${bad}`);
        assert.strictEqual((yield* send("GET", path, host)).status, 200, path);
        assert.deepStrictEqual(yield* send("HEAD", path, host), { status: 200, body: "" }, path);
        assert.strictEqual((yield* send("OPTIONS", path, host)).status, 404, path);
      }
    }).pipe(
      Effect.scoped,
      Effect.provideService(
        ChatbotDirectory,
        ChatbotDirectory.of({ find: () => Effect.succeed(null), recordUse: () => Effect.void }),
      ),
      Effect.provideService(Lifecycle, { phase: "serving", signal: null }),
    ),
);
