import { assert, describe, it } from "@effect/vitest";
import { Effect, Logger, Redacted } from "effect";
import { spawn } from "node:child_process";
import { appendFile, mkdir, readFile, readdir, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { embeddedPostgres } from "../../src/embedded/EmbeddedPostgres.ts";
import { newDataDir } from "./DataDir.ts";
import { query } from "./Query.ts";

const sleeperOf = (data: string) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const { gid, uid } = await stat(data);
      const child = spawn("sleep", ["60"], {
        ...(process.getuid?.() === 0 ? { uid, gid } : {}),
        cwd: "/",
        stdio: "ignore",
      });
      await new Promise((resolve) => child.once("spawn", resolve));
      return child;
    }),
    (child) => Effect.sync(() => child.kill("SIGKILL")),
  );

describe("what former starts left behind", () => {
  it.live("does not keep PostgreSQL from starting", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const data = join(dataDir, "postgres", "data");
      const start = Effect.scoped(
        Effect.flatMap(embeddedPostgres(dataDir), (urlOf) =>
          query(urlOf("parley"), (sql) => sql`SELECT 1 AS one`),
        ),
      );
      const works = Effect.map(start, (rows) => assert.deepStrictEqual(rows, [{ one: 1 }]));

      // A lock, a half cluster and a connection of servers that are gone.
      yield* Effect.promise(async () => {
        await mkdir(join(dataDir, "postgres.new-0123456789ab", "data"), { recursive: true });
        await writeFile(join(dataDir, "postgres.new-0123456789ab", "data", "PG_VERSION"), "18\n");
        await writeFile(join(dataDir, "lock"), "");
        await writeFile(join(dataDir, "lock.pid"), "1\n");
        await writeFile(join(dataDir, "connection.json.new"), "{");
        await writeFile(join(dataDir, "connection.json"), "{");
      });
      yield* works;
      const left = yield* Effect.promise(() => readdir(dataDir));
      assert.sameMembers(left, ["lock", "postgres", "postgres.log"]);

      // The file of a postmaster whose number another program of the same user has now.
      const text = yield* Effect.scoped(
        Effect.andThen(
          embeddedPostgres(dataDir),
          Effect.promise(() => readFile(join(data, "postmaster.pid"), "utf8")),
        ),
      );
      const sleeper = yield* sleeperOf(data);
      const [, ...rest] = text.split("\n");
      yield* Effect.promise(() =>
        writeFile(join(data, "postmaster.pid"), [sleeper.pid, ...rest].join("\n")),
      );
      yield* works;
      assert.isNull(sleeper.exitCode ?? sleeper.signalCode);

      // A file cut short by a loss of power.
      yield* Effect.promise(() => writeFile(join(data, "postmaster.pid"), ""));
      yield* works;
    }).pipe(Effect.provide(Logger.layer([]))),
  );

  it.live("does not let the log grow without bound", () =>
    Effect.gen(function* () {
      const dataDir = yield* newDataDir;
      const log = join(dataDir, "postgres.log");
      yield* Effect.promise(async () => {
        await mkdir(dataDir, { mode: 0o711 });
        await appendFile(log, Buffer.alloc(9 * 1024 * 1024, "x\n"));
      });
      const url = (yield* embeddedPostgres(dataDir))("parley");
      yield* Effect.exit(query(url, (sql) => sql`SELECT nonsense`));
      const text = yield* Effect.promise(() => readFile(log, "utf8"));
      assert.isBelow(text.length, 100_000);
      assert.notInclude(text, Redacted.value(url));
      assert.isAbove((yield* Effect.promise(() => stat(`${log}.1`))).size, 9_000_000);
    }),
  );
});
