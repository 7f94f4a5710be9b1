import { assert, describe, it } from "@effect/vitest";
import { Effect, Logger, Option, Redacted, Schedule } from "effect";
import { mkdir, readFile, rename, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { binariesFor } from "../../src/embedded/Binaries.ts";
import { runningPostgres } from "../../src/embedded/Connection.ts";
import { embeddedPostgres } from "../../src/embedded/EmbeddedPostgres.ts";
import { ownerOf } from "../../src/embedded/OsUser.ts";
import { singleUser } from "../../src/embedded/SingleUser.ts";
import { isAlive, newDataDir, postmasterPid } from "./DataDir.ts";
import { query } from "./Query.ts";
import { startServer } from "./Servers.ts";

/** Asks until there is an answer. */
const answering = (url: Redacted.Redacted) =>
  query(url, (sql) => sql`SELECT answer FROM kept`).pipe(
    Effect.retry({ times: 100, schedule: Schedule.spaced("100 millis") }),
  );

describe("embeddedPostgres", () => {
  it.live("makes a database of its own", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const urlOf = yield* embeddedPostgres(dataDir);
      const url = urlOf("parley");
      yield* query(url, (sql) =>
        Effect.gen(function* () {
          const [database] = yield* sql`
            SELECT current_setting('server_version_num')::int / 10000 AS version,
              pg_encoding_to_char(encoding) AS encoding, datcollate, datctype, datlocprovider::text,
              pg_get_userbyid(datdba) AS owner
            FROM pg_database WHERE datname = current_database()`;
          assert.deepStrictEqual(database, {
            version: 18,
            encoding: "UTF8",
            datcollate: "C",
            datctype: "C.UTF-8",
            datlocprovider: "c",
            owner: "parley",
          });
          const settings = yield* sql<{ name: string; setting: string }>`
            SELECT name, setting FROM pg_settings
            WHERE name IN ('listen_addresses', 'fsync', 'full_page_writes', 'TimeZone', 'lc_messages')`;
          assert.deepStrictEqual(
            Object.fromEntries(settings.map(({ name, setting }) => [name, setting])),
            {
              listen_addresses: "127.0.0.1",
              fsync: "on",
              full_page_writes: "on",
              TimeZone: "UTC",
              lc_messages: "C",
            },
          );
          const [role] = yield* sql`
            SELECT rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication
            FROM pg_roles WHERE rolname = current_user`;
          assert.deepStrictEqual(role, {
            rolname: "parley",
            rolsuper: false,
            rolbypassrls: false,
            rolcreaterole: false,
            rolcreatedb: false,
            rolreplication: false,
          });
          yield* sql`CREATE EXTENSION pg_trgm`;
          yield* sql`CREATE EXTENSION btree_gin`;
          yield* sql`CREATE TABLE "räume" (name text)`;
        }),
      );

      // Its roles alone can connect, each by its own password alone.
      const as = (user: string, password: string) => {
        const changed = new URL(Redacted.value(url));
        changed.username = user;
        changed.password = password;
        return Effect.exit(query(Redacted.make(changed.href), (sql) => sql`SELECT 1`));
      };
      const { password } = new URL(Redacted.value(url));
      assert.strictEqual((yield* as("parley", password))._tag, "Success");
      assert.strictEqual((yield* as("parley", "wrong"))._tag, "Failure");
      assert.strictEqual((yield* as("postgres", password))._tag, "Failure");
      for (const role of ["parley_server", "parley_bound"]) {
        assert.strictEqual((yield* as(role, password))._tag, "Failure");
        const [attributes] = yield* query(
          urlOf(role),
          (sql) => sql`
            SELECT rolname, rolsuper, rolbypassrls, rolcreaterole, rolcreatedb, rolreplication,
              pg_has_role(datdba, 'usage') AS owns
            FROM pg_roles, pg_database WHERE rolname = current_user AND datname = current_database()`,
        );
        assert.deepStrictEqual(attributes, {
          rolname: role,
          rolsuper: false,
          rolbypassrls: false,
          rolcreaterole: false,
          rolcreatedb: false,
          rolreplication: false,
          owns: false,
        });
        const made = yield* Effect.exit(query(urlOf(role), (sql) => sql`CREATE TABLE t (n int)`));
        assert.strictEqual(made._tag, "Failure");
      }
    }),
  );

  it.live("gives a database of an earlier version its roles, also one that was left running", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      yield* Effect.scoped(
        Effect.gen(function* () {
          const urlOf = yield* embeddedPostgres(dataDir);
          yield* query(urlOf("parley"), (sql) => sql`CREATE TABLE kept AS SELECT 42 AS answer`);
        }),
      );
      const home = join(dataDir, "postgres");
      const runAs = yield* ownerOf(join(home, "data"));
      const binaries = yield* binariesFor(runAs);
      yield* singleUser("failed", { binaries, data: join(home, "data"), runAs }, [
        "DROP ROLE parley_server",
        "DROP ROLE parley_bound",
      ]);
      const earlier = "host all parley 127.0.0.1/32 scram-sha-256\n";
      yield* Effect.promise(() => writeFile(join(home, "pg_hba.conf"), earlier));
      const killed = yield* startServer(dataDir);
      yield* killed.first;
      yield* Effect.promise(() => writeFile(join(home, "pg_hba.conf"), earlier));
      process.kill(killed.pid, "SIGKILL");
      yield* killed.exited;
      const urlOf = yield* embeddedPostgres(dataDir);
      assert.deepStrictEqual(yield* answering(urlOf("parley")), [{ answer: 42 }]);
      for (const role of ["parley_server", "parley_bound"]) {
        assert.deepStrictEqual(yield* query(urlOf(role), (sql) => sql`SELECT 1 AS one`), [
          { one: 1 },
        ]);
      }
    }).pipe(Effect.provide(Logger.layer([]))),
  );

  it.live("refuses a second server, and tells tools how to connect to the first", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      assert.deepStrictEqual(yield* runningPostgres(dataDir), Option.none());
      yield* Effect.scoped(
        Effect.gen(function* () {
          const url = (yield* embeddedPostgres(dataDir))("parley");
          for (let time = 0; time < 2; time += 1) {
            const { message } = yield* Effect.flip(Effect.scoped(embeddedPostgres(dataDir)));
            assert.match(message, new RegExp(`^${dataDir} is in use by process ${process.pid}:`));
          }
          const running = Option.getOrThrow(yield* runningPostgres(dataDir))("parley");
          assert.strictEqual(Redacted.value(running), Redacted.value(url));
          const file = join(dataDir, "connection.json");
          assert.strictEqual((yield* Effect.promise(() => stat(file))).mode & 0o777, 0o600);
          yield* query(running, (sql) => sql`SELECT 1`);
        }),
      );
      assert.deepStrictEqual(yield* runningPostgres(dataDir), Option.none());
    }),
  );

  it.live("keeps its data, also where the directory is moved to", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const pid = yield* Effect.scoped(
        Effect.gen(function* () {
          const url = (yield* embeddedPostgres(dataDir))("parley");
          yield* query(url, (sql) => sql`CREATE TABLE kept AS SELECT 42 AS answer`);
          return yield* postmasterPid(dataDir);
        }),
      );
      assert.isFalse(isAlive(pid));
      const moved = `${dataDir} moved`;
      yield* Effect.promise(() => rename(dataDir, moved));
      const url = (yield* embeddedPostgres(moved))("parley");
      assert.deepStrictEqual(yield* query(url, (sql) => sql`SELECT answer FROM kept`), [
        { answer: 42 },
      ]);
    }),
  );

  it.live("comes back when it is killed, even with a child that goes on working", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const url = (yield* embeddedPostgres(dataDir))("parley");
      yield* query(url, (sql) => sql`CREATE TABLE kept AS SELECT 42 AS answer`);
      yield* Effect.forkScoped(
        Effect.exit(query(url, (sql) => sql`SELECT count(*) FROM generate_series(1, 1000000000)`)),
      );
      yield* Effect.sleep("300 millis");
      const first = yield* postmasterPid(dataDir);
      process.kill(first, "SIGKILL");
      const again = yield* answering(url);
      assert.deepStrictEqual(again, [{ answer: 42 }]);
      assert.notStrictEqual(yield* postmasterPid(dataDir), first);
      // A child that is killed makes PostgreSQL recover by itself.
      const [backend] = yield* query(url, (sql) =>
        Effect.tap(sql<{ pid: number }>`SELECT pg_backend_pid() AS pid`, ([row]) =>
          Effect.sync(() => process.kill(row!.pid, "SIGKILL")),
        ),
      );
      assert.isAbove(backend!.pid, 0);
      assert.deepStrictEqual(yield* answering(url), [{ answer: 42 }]);
    }).pipe(Effect.provide(Logger.layer([]))),
  );

  it.live("says in one line why it cannot start", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      yield* Effect.scoped(embeddedPostgres(dataDir));
      const config = join(dataDir, "postgres", "data", "postgresql.conf");
      const text = yield* Effect.promise(() => readFile(config, "utf8"));
      yield* Effect.promise(() => writeFile(config, `${text}\nshared_buffers = nonsense\n`));
      const broken = yield* Effect.flip(Effect.scoped(embeddedPostgres(dataDir)));
      assert.match(
        broken.message,
        /^PostgreSQL did not start; .*postgres\.log ends with: .*nonsense/,
      );
      assert.notInclude(broken.message, "\n");

      yield* Effect.promise(() => writeFile(config, text));
      const version = join(dataDir, "postgres", "data", "PG_VERSION");
      yield* Effect.promise(() => writeFile(version, "17\n"));
      const old = yield* Effect.flip(Effect.scoped(embeddedPostgres(dataDir)));
      assert.match(old.message, /is of PostgreSQL 17, but this is PostgreSQL 18/);

      const file = `${dataDir}-file`;
      yield* Effect.promise(() => writeFile(file, ""));
      const notDirectory = yield* Effect.flip(Effect.scoped(embeddedPostgres(file)));
      assert.match(notDirectory.message, /^PARLEY_DATA_DIR .* cannot be written \(E/);

      const lost = `${dataDir}-lost`;
      yield* Effect.promise(() => mkdir(join(lost, "postgres"), { recursive: true }));
      const { message } = yield* Effect.flip(Effect.scoped(embeddedPostgres(lost)));
      assert.match(message, /^The database in .* cannot be read \(ENOENT\)/);
    }),
  );
});
