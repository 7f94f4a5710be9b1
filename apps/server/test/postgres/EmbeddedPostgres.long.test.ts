import { assert, describe, it } from "@effect/vitest";
import { Duration, Effect, Fiber, Logger, Redacted, Schedule } from "effect";
import { spawn } from "node:child_process";
import * as fs from "node:fs/promises";
import { join } from "node:path";
import { run } from "../../src/postgres/Binaries.ts";
import { hasDatabase } from "../../src/postgres/Cluster.ts";
import { embeddedPostgres, runningPostgres } from "../../src/postgres/EmbeddedPostgres.ts";
import {
  dataOf,
  isAlive,
  keep,
  readKept,
  newDataDir,
  postmasterOf,
  query,
  startServer,
  temporaryDirectory,
} from "./Servers.ts";

const isRoot = process.getuid?.() === 0;

/** Returns the reason why a server cannot start on the directory. */
const refusal = (dataDir: string) =>
  Effect.map(Effect.flip(Effect.scoped(embeddedPostgres(dataDir))), ({ message }) => {
    assert.notInclude(message, "\n");
    return message;
  });

/** Creates a database, stores a value in it, and stops it. */
const fill = (dataDir: string) => Effect.scoped(Effect.flatMap(embeddedPostgres(dataDir), keep));

const answerOf = (dataDir: string) =>
  Effect.scoped(Effect.flatMap(embeddedPostgres(dataDir), readKept));

const quiet = <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.provide(effect, Logger.layer([]));

describe("the embedded PostgreSQL", () => {
  it.live(
    "the embedded PostgreSQL listens only on this machine, and uses UTF-8 and UTC whatever the environment says",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        const server = yield* startServer(dataDir, {
          env: { LC_ALL: "de_DE.ISO-8859-1", PGPORT: "1", TZ: "Asia/Tokyo" },
        });
        const url = yield* server.answer;
        const [row] = yield* query(
          url,
          `SELECT pg_encoding_to_char(encoding) AS encoding, datcollate, datctype, datlocprovider::text,
           pg_get_userbyid(datdba) AS owner, current_setting('TimeZone') AS zone, current_setting('fsync') AS fsync,
           current_setting('listen_addresses') AS addresses, current_setting('unix_socket_directories') AS sockets
         FROM pg_database WHERE datname = current_database()`,
        );
        assert.deepStrictEqual(row, {
          encoding: "UTF8",
          datcollate: "C",
          datctype: "C.UTF-8",
          datlocprovider: "c",
          owner: "parley",
          zone: "UTC",
          fsync: "on",
          addresses: "127.0.0.1",
          sockets: "",
        });
        const wrong = new URL(url);
        wrong.password = "wrong";
        assert.strictEqual((yield* Effect.exit(query(wrong.href, "SELECT 1")))._tag, "Failure");
      }),
  );

  it.live(
    "the embedded PostgreSQL keeps its data when its directory is moved or copied, and starts within 1.5 s",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        yield* fill(dataDir);
        const [moved, copy] = [`${dataDir} moved`, `${dataDir}-copy`];
        yield* Effect.promise(() => fs.rename(dataDir, moved));
        const timedStart = Effect.timed(Effect.scoped(embeddedPostgres(moved)));
        // Two starts, because the machine may be busy for a moment.
        const [first, second] = [yield* timedStart, yield* timedStart].map(([duration]) =>
          Duration.toMillis(duration),
        );
        assert.isBelow(Math.min(first!, second!), 1500);
        const url = yield* embeddedPostgres(moved);
        assert.strictEqual(yield* readKept(url), 42);

        // A copy whose postmaster.pid has the id of a postmaster that is running on another directory.
        const file = join(dataOf(moved), "postmaster.pid");
        const pidFile = yield* Effect.promise(() => fs.readFile(file));
        yield* fill(dataDir);
        yield* run("cp", ["-a", dataDir, copy], null);
        yield* Effect.promise(() => fs.writeFile(join(dataOf(copy), "postmaster.pid"), pidFile));
        assert.isNull(yield* runningPostgres(copy));
        assert.strictEqual(yield* answerOf(copy), 42);
        assert.strictEqual(yield* readKept(url), 42);
      }).pipe(quiet),
  );

  it.live(
    "the embedded PostgreSQL publishes its address to tools and commands for as long as it runs",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        assert.isFalse(yield* hasDatabase(dataDir));
        const file = join(dataDir, "connection.json");
        yield* Effect.scoped(
          Effect.gen(function* () {
            const url = yield* embeddedPostgres(dataDir);
            assert.deepStrictEqual(yield* runningPostgres(dataDir), url);
            const { port, password } = new URL(Redacted.value(url));
            assert.deepStrictEqual(
              JSON.parse(yield* Effect.promise(() => fs.readFile(file, "utf8"))),
              {
                host: "127.0.0.1",
                port: Number(port),
                database: "parley",
                user: "parley",
                password,
              },
            );
            for (const secret of [file, join(dataDir, "postgres", "password")]) {
              assert.strictEqual(
                (yield* Effect.promise(() => fs.stat(secret))).mode & 0o777,
                0o600,
              );
            }
          }),
        );
        assert.isTrue(yield* hasDatabase(dataDir));
        assert.isNull(yield* runningPostgres(dataDir));
        assert.deepStrictEqual(yield* Effect.promise(() => fs.readdir(dataDir)), ["postgres"]);
        const logs = yield* Effect.promise(() => fs.readdir(join(dataOf(dataDir), "log")));
        assert.match(logs.join(), /^postgres-\w{3}\.log(,postgres-\w{3}\.log)?$/);
      }),
  );

  it.live(
    "the embedded PostgreSQL starts even if postmaster.pid is empty or has another process's id",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        yield* fill(dataDir);
        const { gid, uid } = yield* Effect.promise(() => fs.stat(dataOf(dataDir)));
        const other = yield* Effect.acquireRelease(
          Effect.sync(() =>
            spawn("sleep", ["60"], { ...(isRoot ? { uid, gid } : {}), stdio: "ignore" }),
          ),
          (sleep) => Effect.sync(() => sleep.kill()),
        );
        for (const leftover of [`${other.pid}\n${dataOf(dataDir)}\n1\n1\n\n127.0.0.1\n`, ""]) {
          const file = join(dataOf(dataDir), "postmaster.pid");
          yield* Effect.promise(() => fs.writeFile(file, leftover));
          assert.strictEqual(yield* answerOf(dataDir), 42);
          assert.isTrue(isAlive(other.pid!));
        }
      }).pipe(quiet),
  );

  it.live(
    "the embedded PostgreSQL restricts a directory that Kubernetes' fsGroup opened to others, and logs this once",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        yield* fill(dataDir);
        const lines: Array<string> = [];
        const logger = Logger.layer([
          Logger.make(({ message }) => void lines.push(String(message))),
        ]);
        for (const mode of [0o2770, 0o755, 0o700, 0o750]) {
          yield* Effect.promise(() => fs.chmod(dataOf(dataDir), mode));
          lines.length = 0;
          assert.strictEqual(yield* Effect.provide(answerOf(dataDir), logger), 42);
          const permissions = (yield* Effect.promise(() => fs.stat(dataOf(dataDir)))).mode & 0o7777;
          const isOpen = (mode & 0o027) !== 0;
          assert.strictEqual(permissions, isOpen ? 0o700 : mode);
          assert.lengthOf(
            lines.filter((line) => line.includes("to 0700")),
            isOpen ? 1 : 0,
          );
        }
      }).pipe(quiet),
  );

  it.live("the embedded PostgreSQL says in one line why it cannot start", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      yield* fill(dataDir);
      const edit = Effect.fnUntraced(function* (name: string, text: string) {
        const file = join(dataOf(dataDir), name);
        const before = yield* Effect.promise(() => fs.readFile(file, "utf8"));
        yield* Effect.promise(() => fs.writeFile(file, text));
        const message = yield* refusal(dataDir);
        yield* Effect.promise(() => fs.writeFile(file, before));
        return message;
      });
      assert.match(
        yield* edit("postgresql.conf", "shared_buffers = nonsense\n"),
        /^PostgreSQL did not start \(exit code 1\): .*nonsense/,
      );
      // PostgreSQL writes this only to its own log.
      yield* Effect.promise(() => fs.rename(join(dataOf(dataDir), "pg_wal"), join(dataDir, "wal")));
      assert.match(yield* refusal(dataDir), /^PostgreSQL did not start .*"pg_wal" does not exist/);
      yield* Effect.promise(() => fs.rename(join(dataDir, "wal"), join(dataOf(dataDir), "pg_wal")));
      assert.match(
        yield* edit("PG_VERSION", "17\n"),
        /^PostgreSQL did not start .*was initialized by PostgreSQL version 17/,
      );
      assert.strictEqual(yield* answerOf(dataDir), 42);

      const lost = `${dataDir}-lost`;
      yield* Effect.promise(() => fs.mkdir(join(lost, "postgres"), { recursive: true }));
      assert.match(yield* refusal(lost), /^Cannot read the database in .*: ENOENT/);
      assert.match(
        yield* refusal("/dev/null/data"),
        /^Cannot use PARLEY_DATA_DIR \/dev\/null\/data: ENOTDIR/,
      );
    }).pipe(quiet),
  );
});

describe("after a kill -9", () => {
  it.live(
    "after a kill -9 of the server, exactly one of two new servers stops the orphaned PostgreSQL and starts",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        const firstServer = yield* startServer(dataDir);
        yield* keep(yield* firstServer.answer);
        const orphan = yield* postmasterOf(dataDir);
        yield* firstServer.kill("SIGKILL");
        yield* firstServer.exitCode;
        assert.isTrue(isAlive(orphan));

        const servers = [yield* startServer(dataDir), yield* startServer(dataDir)];
        const answers = yield* Effect.all(
          servers.map(({ answer }) => answer),
          { concurrency: 2 },
        );
        const winner = answers.findIndex((answer) => answer.startsWith("postgres:"));
        assert.include(
          answers[1 - winner],
          `failed ${dataDir} is in use by process ${servers[winner]!.pid}: stop that process`,
        );
        assert.strictEqual(yield* servers[1 - winner]!.exitCode, 1);
        assert.strictEqual(yield* readKept(answers[winner]!), 42);
        assert.notStrictEqual(yield* postmasterOf(dataDir), orphan);

        const postmaster = yield* postmasterOf(dataDir);
        yield* servers[winner]!.kill("SIGTERM");
        yield* servers[winner]!.exitCode;
        assert.isFalse(isAlive(postmaster));
      }),
  );

  it.live(
    "after a kill -9 of PostgreSQL or one of its children, the database recovers, and a second server refuses to start",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        const url = yield* embeddedPostgres(dataDir);
        yield* keep(url);
        const first = yield* postmasterOf(dataDir);
        process.kill(first, "SIGKILL");
        assert.strictEqual(yield* readKept(url), 42);
        assert.notStrictEqual(yield* postmasterOf(dataDir), first);

        const child = yield* Effect.forkChild(
          Effect.exit(query(url, "SELECT pg_sleep(60) /* the child */")),
        );
        const [backend] = yield* query(
          url,
          "SELECT pid FROM pg_stat_activity WHERE query LIKE '%/* the child */' AND pid <> pg_backend_pid()",
        ).pipe(
          Effect.repeat({
            until: ([row]) => row !== undefined,
            schedule: Schedule.spaced("50 millis"),
          }),
        );
        process.kill(Number(backend!["pid"]), "SIGKILL");
        yield* Fiber.join(child);
        assert.strictEqual(yield* readKept(url), 42);
        yield* Effect.sleep("1 second");
        assert.match(yield* refusal(dataDir), new RegExp(`is in use by process ${process.pid}:`));
        assert.strictEqual(yield* readKept(url), 42);
      }).pipe(quiet),
  );

  it.live("after a kill -9 of the server and its PostgreSQL, the next server starts", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const firstServer = yield* startServer(dataDir);
      yield* keep(yield* firstServer.answer);
      const postmaster = yield* postmasterOf(dataDir);
      yield* firstServer.kill("SIGKILL");
      process.kill(postmaster, "SIGKILL");
      yield* firstServer.exitCode;
      assert.strictEqual(yield* answerOf(dataDir), 42);
    }),
  );

  it.live(
    "after a kill -9 of a server that is creating its database, the next one starts over",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        const firstServer = yield* startServer(dataDir);
        const isCreating = Effect.tryPromise(async () => {
          const newDirectory = (await fs.readdir(dataDir)).find((name) => name.includes(".new-"));
          await fs.access(join(dataDir, newDirectory!, "data", "PG_VERSION"));
        });
        yield* Effect.retry(isCreating, { times: 500, schedule: Schedule.spaced("10 millis") });
        yield* firstServer.kill("SIGKILL");
        yield* firstServer.exitCode;
        yield* keep(yield* embeddedPostgres(dataDir));
      }),
  );
});

describe("servers on one directory", () => {
  it.live(
    "if two servers start on a directory at the same moment, only one serves, and its PostgreSQL is not stopped",
    () =>
      Effect.gen(function* () {
        const dataDir = yield* newDataDir;
        for (const isNew of [true, false]) {
          yield* Effect.scoped(
            Effect.gen(function* () {
              const servers = [yield* startServer(dataDir), yield* startServer(dataDir)];
              const answers = yield* Effect.all(
                servers.map(({ answer }) => answer),
                { concurrency: 2 },
              );
              assert.match(
                answers.toSorted().join(),
                /^failed .* is in use by process .*,postgres:/,
              );
              const winner = answers.findIndex((answer) => answer.startsWith("postgres:"));
              assert.strictEqual(yield* servers[1 - winner]!.exitCode, 1);
              const postmaster = yield* postmasterOf(dataDir);
              if (isNew) yield* keep(answers[winner]!);
              // A third server, later.
              const third = yield* startServer(dataDir);
              assert.include(yield* third.answer, "is in use by process");
              assert.strictEqual(yield* third.exitCode, 1);
              assert.strictEqual(yield* readKept(answers[winner]!), 42);
              assert.strictEqual(yield* postmasterOf(dataDir), postmaster);
              assert.notInclude(servers[winner]!.lines.join("\n"), "exited unexpectedly");
            }),
          );
        }
      }),
  );

  it.live("a server drains before it stops PostgreSQL when Ctrl-C reaches its process group", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const server = yield* startServer(dataDir, { drainFile: `${dataDir}-drained` });
      const url = yield* server.answer;
      yield* keep(url);
      const postmaster = yield* postmasterOf(dataDir);
      process.kill(-server.pid, "SIGINT");
      yield* Effect.sleep("500 millis");
      assert.notInclude(server.lines, "drained");
      assert.strictEqual(yield* readKept(url), 42);
      yield* Effect.promise(() => fs.writeFile(`${dataDir}-drained`, ""));
      yield* server.exitCode;
      assert.include(server.lines, "drained");
      assert.isFalse(isAlive(postmaster));
    }),
  );
});

const nobody = { uid: 65534, gid: 65534 };

describe.skipIf(!isRoot)("as root", () => {
  it.live(
    "a server run as root runs PostgreSQL as another user, even in a directory that is closed to that user",
    () =>
      Effect.gen(function* () {
        const closed = yield* temporaryDirectory;
        yield* Effect.promise(() => fs.chmod(closed, 0o700));
        const dataDir = join(closed, "data");
        yield* fill(dataDir);
        const { mode, uid } = yield* Effect.promise(() => fs.stat(dataOf(dataDir)));
        assert.notStrictEqual(uid, 0);
        assert.strictEqual(mode & 0o777, 0o700);
        const copy = join(closed, "copy");
        yield* run("cp", ["-a", dataDir, copy], null);
        yield* run("chown", ["-R", "root", join(copy, "postgres", "data")], null);
        assert.match(
          yield* refusal(copy),
          /^PostgreSQL did not start .*"root" execution of the PostgreSQL server is not permitted/,
        );
        yield* run("chown", ["-R", String(uid), join(copy, "postgres", "data")], null);
        assert.strictEqual(yield* answerOf(copy), 42);
        assert.strictEqual(yield* answerOf(dataDir), 42);
      }),
  );

  it.live(
    "a server run as root starts in a container where root may not inspect other users' processes",
    () =>
      Effect.gen(function* () {
        const through = ["setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-sys_ptrace"];
        const dataDir = yield* newDataDir;
        const server = yield* startServer(dataDir, { through });
        assert.match(yield* server.answer, /^postgres:/);
        assert.include(yield* refusal(dataDir), "is in use by process");
      }).pipe(quiet),
  );

  it.live(
    "a server run as root runs the database of an ordinary user's server, but another user's server does not",
    () =>
      Effect.gen(function* () {
        const directory = yield* temporaryDirectory;
        yield* Effect.promise(() => fs.chown(directory, nobody.uid, nobody.gid));
        const dataDir = join(directory, "data");
        const server = yield* startServer(dataDir, nobody);
        yield* keep(yield* server.answer);
        yield* server.kill("SIGTERM");
        yield* server.exitCode;
        assert.strictEqual((yield* Effect.promise(() => fs.stat(dataOf(dataDir)))).uid, nobody.uid);
        assert.strictEqual(yield* answerOf(dataDir), 42);
        const other = yield* startServer(dataDir, { uid: 65533, gid: 65533 });
        assert.match(yield* other.answer, /^failed Cannot create a database in .*: EACCES/);
      }),
  );

  it.live("the embedded PostgreSQL says in one line that the disk is full", () =>
    Effect.gen(function* () {
      const directory = yield* temporaryDirectory;
      const mount = (size: string) =>
        Effect.acquireRelease(
          run("mount", ["-t", "tmpfs", "-o", `size=${size}`, "parley", directory], null),
          () => Effect.ignore(run("umount", [directory], null)),
        );
      yield* Effect.scoped(
        Effect.gen(function* () {
          yield* mount("8m");
          assert.match(
            yield* refusal(join(directory, "data")),
            /^Cannot create a database in .*No space left on device/,
          );
        }),
      );
      yield* mount("200m");
      const dataDir = join(directory, "data");
      yield* fill(dataDir);
      const rest = join(directory, "rest");
      yield* Effect.ignore(run("dd", ["if=/dev/zero", `of=${rest}`, "bs=4k"], null));
      assert.match(yield* refusal(dataDir), /^PostgreSQL did not start .*No space left on device/);
      yield* Effect.promise(() => fs.rm(rest));
      assert.strictEqual(yield* answerOf(dataDir), 42);
    }).pipe(quiet),
  );
});
