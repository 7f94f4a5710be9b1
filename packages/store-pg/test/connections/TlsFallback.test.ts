/**
 * The fallback from TLS, on a server that sometimes refuses TLS. Its connections then carry PostgreSQL's plain text.
 */
import { execFile } from "node:child_process";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { connect, createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { TLSSocket } from "node:tls";
import { promisify } from "node:util";
import { assert, it } from "@effect/vitest";
import { Effect, Logger, Redacted } from "effect";
import { vi } from "vitest";
import { deadlines } from "../../src/connections/Deadlines.ts";
import { makePools } from "../../src/connections/PgPools.ts";
import { freshSchema, optionsOf } from "../PostgresUnderTest.ts";

/** Listens in front of PostgreSQL, and answers each request for TLS as `accepts` says. Counts connections by kind. */
const makeFront = Effect.gen(function* () {
  const url = new URL(Redacted.value(optionsOf("parley").url));
  const { hostname, port } = url;
  url.search = "sslmode=prefer";
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(join(tmpdir(), "parley-tls-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true })),
  );
  const [keyFile, certFile] = [join(directory, "key.pem"), join(directory, "cert.pem")];
  yield* Effect.promise(() =>
    promisify(execFile)("openssl", [
      ..."req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost".split(" "),
      "-keyout",
      keyFile,
      "-out",
      certFile,
    ]),
  );
  const [key, cert] = yield* Effect.promise(() =>
    Promise.all([keyFile, certFile].map((file) => readFile(file))),
  );
  const front = { url: optionsOf("parley").url, accepts: true, encrypted: 0, plain: 0 };
  const server = createServer((near) => {
    near.on("error", () => undefined);
    near.once("data", (request) => {
      const far = connect(Number(port), hostname);
      far.on("error", () => undefined);
      near.on("close", () => far.destroy());
      // A request for TLS has eight bytes.
      if (request.length !== 8) {
        front.plain++;
        far.write(request);
        near.pipe(far).pipe(near);
      } else if (!front.accepts) {
        near.write("N");
      } else {
        front.encrypted++;
        near.write("S");
        const secure = new TLSSocket(near, { isServer: true, key: key!, cert: cert! });
        secure.on("error", () => undefined);
        secure.pipe(far).pipe(secure);
      }
    });
  });
  yield* Effect.promise(() => new Promise<void>((done) => server.listen(0, "127.0.0.1", done)));
  yield* Effect.addFinalizer(() => Effect.sync(() => server.close()));
  url.hostname = "127.0.0.1";
  url.port = String((server.address() as AddressInfo).port);
  front.url = Redacted.make(url.href);
  return front;
});

it.live(
  "a connection for which PostgreSQL refuses TLS is in plain text, later ones use TLS again, and each fallback is logged",
  () => {
    const lines: Array<string> = [];
    const logger = Logger.make(({ logLevel, message }) => {
      if (logLevel !== "Debug" && String(message).includes("TLS")) lines.push(logLevel);
    });
    return Effect.gen(function* () {
      const front = yield* makeFront;
      const now = performance.now.bind(performance);
      let elapsed = 0;
      const clock = vi.spyOn(performance, "now").mockImplementation(() => now() + elapsed);
      yield* Effect.addFinalizer(() => Effect.sync(() => clock.mockRestore()));
      const pools = yield* makePools({ url: front.url, schema: freshSchema(), maxConnections: 5 });
      const write = pools.writes.query("operator", "select pg_sleep(0.01)");
      /** Opens the only connection for writes again, and returns how many connections each kind has gained. */
      const reconnect = Effect.fnUntraced(function* (accepts: boolean) {
        elapsed += deadlines.connectionAge;
        front.accepts = accepts;
        // The read pool's probe of the database also opens connections, so only the differences count.
        Object.assign(front, { encrypted: 0, plain: 0 });
        yield* write;
        return [front.encrypted > 0, front.plain > 0];
      });
      assert.deepStrictEqual(yield* reconnect(false), [false, true]);
      assert.deepStrictEqual(lines, ["Info"]);
      assert.deepStrictEqual(yield* reconnect(false), [false, true]);
      assert.deepStrictEqual(lines, ["Info"]);
      assert.deepStrictEqual(yield* reconnect(true), [true, false]);
      assert.deepStrictEqual(yield* reconnect(true), [true, false]);
      assert.deepStrictEqual(yield* reconnect(false), [false, true]);
      assert.deepStrictEqual(lines, ["Info", "Warn"]);
      assert.deepStrictEqual(yield* reconnect(true), [true, false]);
    }).pipe(Effect.scoped, Effect.provide(Logger.layer([logger])));
  },
);

it.live("connections that are refused at the same time all fall back", () =>
  Effect.gen(function* () {
    const front = yield* makeFront;
    front.accepts = false;
    const pools = yield* makePools({ url: front.url, schema: freshSchema(), maxConnections: 12 });
    const write = (tenant: number) => pools.writes.query(tenant, "select pg_sleep(0.2)");
    yield* Effect.forEach([1, 2, 3, 4, 5, 6], write, { concurrency: "unbounded" });
    assert.isAtLeast(front.plain, 6);
    assert.strictEqual(front.encrypted, 0);
  }).pipe(Effect.scoped),
);
