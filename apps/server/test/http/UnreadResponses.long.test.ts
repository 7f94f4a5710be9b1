/**
 * A client that reads too little of its response is disconnected.
 */
import { expect, it } from "@effect/vitest";
import { Duration, Effect, Stream } from "effect";
import { HttpServerResponse } from "effect/http";
import { once } from "node:events";
import { connect } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";
import { listen } from "../../src/http/Listener.ts";
import { Lifecycle } from "../../src/Lifecycle.ts";

/** More than the system can buffer. */
const size = 64 * 1024 * 1024;
const app = Effect.succeed(HttpServerResponse.uint8Array(new Uint8Array(size)));
const streamingApp = Effect.sync(() =>
  HttpServerResponse.stream(
    Stream.range(1, size / 65_536, 1).pipe(Stream.map(() => new Uint8Array(65_536))),
  ),
);

for (const [what, response] of [
  ["in one piece", app],
  ["in pieces", streamingApp],
] as const)
  it.live(
    `a client that reads less than 16 kB a second of a response ${what} is disconnected, and one that reads more is not`,
    () =>
      Effect.gen(function* () {
        const origin = yield* listen(response, {
          host: "127.0.0.1",
          port: 0,
          grace: Duration.seconds(1),
        }).pipe(Effect.provideService(Lifecycle, { phase: "serving", signal: null }));
        yield* Effect.promise(async () => {
          const open = () => {
            const socket = connect(Number(new URL(origin).port), "127.0.0.1");
            socket.on("error", () => {}).write("GET / HTTP/1.1\r\nHost: a\r\n\r\n");
            let bytes = 0;
            /** Reads once, at most 64 kB. */
            const read = () => void (bytes += (socket.read() as Buffer | null)?.length ?? 0);
            return { socket, closed: once(socket, "close"), read, bytesRead: () => bytes };
          };
          const [idle, trickle, slow] = [open(), open(), open()];
          for (let n = 0; n < 7; n++) {
            await sleep(6_000);
            trickle.read();
            const end = slow.bytesRead() + 4_000_000;
            for (; slow.bytesRead() < end && !slow.socket.closed; slow.read()) await sleep(1);
          }
          // The sockets only notice a close after reading what the system has buffered.
          for (const { read, socket } of [idle, trickle, slow]) socket.on("readable", read);
          await Promise.all([
            idle.closed,
            trickle.closed,
            Promise.race([slow.closed, sleep(5_000)]),
          ]);
          expect(idle.bytesRead()).toBeLessThan(size);
          expect(trickle.bytesRead()).toBeLessThan(size);
          expect(slow.bytesRead()).toBeGreaterThan(size);
          slow.socket.destroy();
        });
      }).pipe(Effect.scoped),
    90_000,
  );
