/**
 * The fallback from TLS, with a server that refuses connections with TLS at times. `system/Tls.test.ts` has a real one.
 */
import { assert, it } from "@effect/vitest";
import { Effect, Logger } from "effect";
import { SqlError } from "effect/sql";
import { vi } from "vitest";
import { deadlines } from "../../src/connections/Deadlines.ts";
import { makeTlsChoice } from "../../src/connections/TlsFallback.ts";

const refusal = () => {
  const cause = Object.assign(new Error("no pg_hba.conf entry"), { code: "28000" });
  const reason = new SqlError.ConnectionError({ operation: "connect", cause });
  return new SqlError.SqlError({ reason });
};

/** A server, and a function that opens a connection to it, and returns whether the connection is encrypted. */
const makeServer = () => {
  const server = { refusesTls: false };
  const { latest, noteOpening, withFallback } = makeTlsChoice({ rejectUnauthorized: false }, false);
  const connect = withFallback(
    Effect.gen(function* () {
      noteOpening();
      const isEncrypted = latest() !== false;
      yield* Effect.yieldNow;
      return isEncrypted && server.refusesTls ? yield* refusal() : isEncrypted;
    }),
  );
  return { server, connect };
};

it.effect(
  "a connection for which PostgreSQL refuses TLS is in plain text, later ones use TLS again, and each fallback is logged",
  () => {
    const lines: Array<string> = [];
    const logger = Logger.make(({ logLevel }) => void lines.push(logLevel));
    return Effect.gen(function* () {
      const { connect, server } = makeServer();
      const now = performance.now.bind(performance);
      let elapsed = 0;
      const clock = vi.spyOn(performance, "now").mockImplementation(() => now() + elapsed);
      yield* Effect.addFinalizer(() => Effect.sync(() => clock.mockRestore()));
      for (const [refusesTls, levels] of [
        [true, ["Info"]],
        [true, ["Info"]],
        [false, ["Info"]],
        [false, ["Info"]],
        [true, ["Info", "Warn"]],
        [false, ["Info", "Warn"]],
      ] as const) {
        elapsed += deadlines.connectionAge;
        server.refusesTls = refusesTls;
        assert.strictEqual(yield* connect, !refusesTls);
        assert.deepStrictEqual(lines, [...levels]);
      }
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([logger])));
  },
);

it.effect("connections that are refused at the same time all fall back", () =>
  Effect.gen(function* () {
    const { connect, server } = makeServer();
    server.refusesTls = true;
    const connections = Effect.replicateEffect(connect, 6, { concurrency: "unbounded" });
    assert.deepStrictEqual(yield* connections, Array(6).fill(false));
  }),
);
