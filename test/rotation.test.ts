/**
 * A server whose database password is rotated.
 */
import { assert, it } from "@effect/vitest";
import { Effect, Redacted, Schedule } from "effect";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { inject } from "vitest";
import { clientOf, freshDatabase } from "../packages/store-pg/test/PostgresUnderTest.ts";
import { start } from "../apps/server/test/cli/run.ts";
import { freePort } from "../apps/server/test/FreePort.ts";

it.live(
  "a server goes on with the user and the password that replace those in the file of DATABASE_URL_FILE",
  () =>
    Effect.gen(function* () {
      const { name, url } = yield* freshDatabase();
      const superuser = yield* clientOf("public", 1, Redacted.make(inject("roleUrls").superuser));
      const [former, next] = [`${name}_a`, `${name}_b`];
      const owner = new URL(Redacted.value(url)).username;
      for (const role of [former, next]) {
        yield* Effect.acquireRelease(
          superuser.unsafe(`create role ${role} login in role ${owner} password '${role}'`),
          () => Effect.orDie(superuser.unsafe(`drop role ${role}`)),
        );
        // Both roles create objects as the owner, so they can be dropped.
        yield* superuser.unsafe(`alter role ${role} set role ${owner}`);
      }
      const directory = mkdtempSync(join(tmpdir(), "parley-rotation-"));
      yield* Effect.addFinalizer(() => Effect.sync(() => rmSync(directory, { recursive: true })));
      const file = join(directory, "database-url");
      const write = (role: string) => {
        const address = new URL(Redacted.value(url));
        address.username = address.password = role;
        writeFileSync(file, `${address.href}\n`);
      };
      const disconnect = superuser.unsafe(
        "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1",
        [name],
      );
      write(former);
      const port = yield* Effect.promise(freePort);
      const server = start(["serve"], {
        DATABASE_URL_FILE: file,
        PARLEY_DATA_DIR: directory,
        PARLEY_PORT: "0",
        PARLEY_MANAGEMENT_PORT: String(port),
      });
      yield* Effect.addFinalizer(() => {
        server.child.kill("SIGINT");
        return Effect.promise(() => server.exit);
      });
      const becomesReady = Effect.tryPromise(() =>
        fetch(`http://127.0.0.1:${port}/health/ready`),
      ).pipe(
        Effect.filterOrFail(({ status }) => status === 200),
        Effect.retry({ schedule: Schedule.spaced("100 millis"), times: 150 }),
      );
      yield* becomesReady;
      yield* superuser.unsafe(`alter role ${former} nologin`);
      yield* disconnect;
      // While the file is being replaced, it may be missing.
      rmSync(file);
      yield* Effect.sleep("1 second");
      write(next);
      yield* becomesReady;
      const users = yield* superuser.unsafe<{ usename: string }>(
        "select distinct usename from pg_stat_activity where datname = $1",
        [name],
      );
      assert.deepStrictEqual(users, [{ usename: next }]);
    }).pipe(Effect.scoped),
  60_000,
);
