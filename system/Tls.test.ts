/**
 * Connections to PostgreSQL are encrypted and verified as libpq would do it, here with the test's own authority.
 */
import { assert, layer } from "@effect/vitest";
import { ChatbotRegistry } from "@parley/core/ports";
import { inspectPostgres, layerPostgres, securityOf } from "@parley/store-pg";
import { Context, Effect, Layer, Redacted, Schedule } from "effect";
import { execFile } from "node:child_process";
import { chmod, chown, mkdtemp, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { readSettings } from "../apps/server/src/Settings.ts";
import { clientOf } from "../packages/store-pg/test/PostgresUnderTest.ts";
import { createCluster, startCluster } from "../test/PostgresCluster.ts";

const openssl = (directory: string, args: string) =>
  promisify(execFile)("openssl", args.split(" "), { cwd: directory });
const newKey = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes";

/** Makes two authorities. The first signs the server's certificate, whose only name is localhost. */
const makeCertificates = async (directory: string) => {
  for (const name of ["authority", "other"]) {
    await openssl(
      directory,
      `req -x509 ${newKey} -keyout ${name}.key -out ${name}.pem -subj /CN=${name} -days 2`,
    );
  }
  await openssl(directory, `req ${newKey} -keyout server.key -out server.csr -subj /CN=localhost`);
  await writeFile(join(directory, "names"), "subjectAltName=DNS:localhost");
  await openssl(
    directory,
    "x509 -req -in server.csr -CA authority.pem -CAkey authority.key -days 2 -extfile names -out server.crt",
  );
};

class Server extends Context.Service<
  Server,
  {
    readonly directory: string;
    /** The server's URL with these query parameters. */
    readonly address: (parameters: string, host?: string) => Redacted.Redacted;
    /** Turns TLS on or off, and sets which connections pg_hba.conf allows. */
    readonly configure: (
      ssl: "on" | "off",
      allowed: "host" | "hostssl" | "hostnossl",
    ) => Effect.Effect<void>;
    readonly disconnectAll: Effect.Effect<unknown>;
  }
>()("test/Server") {
  static readonly layer = Layer.effect(
    Server,
    Effect.gen(function* () {
      const directory = yield* Effect.acquireRelease(
        Effect.promise(() => mkdtemp(join(tmpdir(), "parley-tls-"))),
        (path) => Effect.promise(() => rm(path, { recursive: true })),
      );
      const cluster = yield* Effect.promise(() => createCluster(directory));
      yield* Effect.acquireRelease(
        Effect.promise(() => startCluster(cluster)),
        ({ stop }) => Effect.promise(stop),
      );
      const { data } = cluster;
      const plain = new URL(cluster.urlOf("postgres"));
      yield* Effect.promise(async () => {
        await makeCertificates(directory);
        const { gid, uid } = await stat(data);
        for (const name of ["server.key", "server.crt"]) {
          await promisify(execFile)("cp", [join(directory, name), data]);
          await chown(join(data, name), uid, gid);
          await chmod(join(data, name), 0o600);
        }
      });
      plain.search = "";
      const operator = yield* clientOf("public", 1, Redacted.make(plain.href));
      const query = (text: string) => Effect.orDie(operator.unsafe<{ time: Date }>(text));
      return Server.of({
        directory,
        address: (parameters, host = "127.0.0.1") => {
          const url = new URL(plain);
          url.hostname = host;
          url.search = parameters;
          return Redacted.make(url.href);
        },
        configure: Effect.fnUntraced(function* (ssl, allowed) {
          yield* Effect.promise(() =>
            writeFile(join(data, "pg_hba.conf"), `${allowed} all all all scram-sha-256\n`),
          );
          yield* query(`alter system set ssl = ${ssl}`);
          const before = yield* query("select pg_conf_load_time() as time");
          yield* query("select pg_reload_conf()");
          yield* Effect.repeat(query("select pg_conf_load_time() as time"), {
            until: ([now]) => now!.time.getTime() !== before[0]!.time.getTime(),
            schedule: Schedule.spaced("10 millis"),
          });
        }),
        disconnectAll: query(
          "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'parley'",
        ),
      });
    }),
  );
}

/** How a connection with these parameters is secured, or why it fails. */
const connect = (parameters: string, host?: string) =>
  Effect.gen(function* () {
    const { address } = yield* Server;
    const DATABASE_URL = Redacted.value(address(parameters, host));
    const { authorities, databaseUrl } = yield* readSettings({ DATABASE_URL });
    yield* inspectPostgres({ url: databaseUrl!, authorities });
    return securityOf(databaseUrl!);
  }).pipe(Effect.catch(({ message }) => Effect.succeed(message)));

layer(Server.layer, { excludeTestServices: true })("a connection", (it) => {
  it.effect(
    "a connection to a server without TLS is plain text, and fails if sslmode requires TLS",
    () =>
      Effect.gen(function* () {
        const { configure } = yield* Server;
        yield* configure("off", "host");
        for (const mode of ["", "sslmode=disable", "sslmode=allow", "sslmode=prefer"]) {
          assert.strictEqual(yield* connect(mode), "plain text", mode);
        }
        for (const mode of ["require", "verify-ca", "verify-full"]) {
          assert.include(yield* connect(`sslmode=${mode}`), "does not support TLS");
        }
      }),
  );

  it.effect(
    "if the server offers TLS, sslmode decides whether a connection is encrypted and verified",
    () =>
      Effect.gen(function* () {
        const { configure, directory } = yield* Server;
        yield* configure("on", "host");
        const by = (mode: string, authority: string) =>
          `sslmode=${mode}&sslrootcert=${join(directory, `${authority}.pem`)}`;
        const ways =
          "sslrootcert or NODE_EXTRA_CA_CERTS to the path of PostgreSQL's CA certificate";
        for (const [parameters, host, result] of [
          ["", "127.0.0.1", "unverified TLS"],
          ["sslmode=prefer", "127.0.0.1", "unverified TLS"],
          ["sslmode=allow", "127.0.0.1", "plain text"],
          ["sslmode=disable", "127.0.0.1", "plain text"],
          ["sslmode=require", "localhost", ways],
          ["sslmode=verify-ca", "localhost", ways],
          [by("require", "other"), "localhost", ways],
          [by("verify-ca", "other"), "localhost", ways],
          [by("require", "authority"), "localhost", "verified TLS"],
          [by("require", "authority"), "127.0.0.1", "sslmode=verify-ca"],
          [by("verify-ca", "authority"), "127.0.0.1", "verified TLS"],
          [by("verify-full", "authority"), "127.0.0.1", "sslmode=verify-ca"],
          [by("verify-full", "authority"), "localhost", "verified TLS"],
          [by("prefer", "other"), "localhost", "unverified TLS: sslrootcert needs"],
          ["sslrootcert=system", "localhost", ways],
        ] as const) {
          const outcome = yield* connect(parameters, host);
          assert.isTrue(
            outcome.startsWith(result) || outcome.endsWith(`${result}.`),
            `${parameters}: ${outcome}`,
          );
        }
      }),
  );

  it.effect("pg_hba.conf decides whether a connection is encrypted, unless sslmode does", () =>
    Effect.gen(function* () {
      const { configure, directory } = yield* Server;
      yield* configure("on", "hostssl");
      for (const mode of ["", "sslmode=allow"]) {
        assert.strictEqual(yield* connect(mode), "unverified TLS", mode);
      }
      assert.include(yield* connect("sslmode=disable"), "no pg_hba.conf entry");
      yield* configure("on", "hostnossl");
      for (const mode of ["", "sslmode=allow"]) {
        assert.strictEqual(yield* connect(mode), "plain text", mode);
      }
      const verified = `sslmode=require&sslrootcert=${join(directory, "authority.pem")}`;
      assert.include(yield* connect(verified, "localhost"), "no pg_hba.conf entry");
    }),
  );

  it.effect("reconnecting works after the server turns TLS off, requires it or forbids it", () =>
    Effect.gen(function* () {
      const { address, configure, disconnectAll } = yield* Server;
      yield* configure("on", "host");
      const url = address("");
      yield* Effect.gen(function* () {
        const registry = yield* ChatbotRegistry;
        assert.strictEqual(securityOf(url), "unverified TLS");
        for (const [ssl, allowed, security] of [
          ["off", "host", "plain text"],
          ["on", "hostssl", "unverified TLS"],
          ["on", "hostnossl", "plain text"],
        ] as const) {
          yield* configure(ssl, allowed);
          yield* disconnectAll;
          yield* Effect.retry(registry.list, { times: 5, schedule: Schedule.spaced("100 millis") });
          assert.strictEqual(securityOf(url), security);
        }
      }).pipe(Effect.provide(layerPostgres({ url })));
    }),
  );
});
