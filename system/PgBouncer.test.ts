/**
 * Parley behind PgBouncer, as docs/scaling.md describes it.
 */
import { assert, it, layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { layerPostgres, migratePostgres } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { here } from "../apps/server/test/cli/here.ts";
import { start } from "../apps/server/test/cli/run.ts";
import { freePort } from "../apps/server/test/FreePort.ts";
import {
  freshDatabase,
  layerPostgresUnderTest,
} from "../packages/store-pg/test/PostgresUnderTest.ts";
import { fencesOf, read, sectionOf } from "../test/docs/Fences.ts";

/** Debian's unprivileged user: PgBouncer does not run as root. */
const nobody = process.getuid?.() === 0 ? { uid: 65534, gid: 65534 } : {};

/**
 * Starts Debian's PgBouncer in front of a database, in transaction mode; returns the URL that leads through it. By
 * default, PgBouncer rejects a client that asks for settings when it connects.
 */
const throughPgBouncer = Effect.fnUntraced(function* (url: Redacted.Redacted, settings = "") {
  const near = new URL(Redacted.value(url));
  const { hostname, password, pathname, port, username } = near;
  const directory = yield* Effect.acquireRelease(
    Effect.promise(() => mkdtemp(join(tmpdir(), "parley-pgbouncer-"))),
    (path) => Effect.promise(() => rm(path, { recursive: true, force: true })),
  );
  const file = join(directory, "pgbouncer.ini");
  yield* Effect.promise(async () => {
    near.port = String(await freePort());
    await chmod(directory, 0o711);
    await writeFile(
      file,
      `[databases]
${pathname.slice(1)} = host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${near.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
${settings}
`,
    );
  });
  // PgBouncer logs to standard error.
  const program = ["/bin/sh", "-c", 'exec /usr/sbin/pgbouncer "$0" 2>&1'] as const;
  const { untilPrinted } = yield* Effect.acquireRelease(
    Effect.sync(() => start([file], {}, program, { ...nobody, cwd: directory })),
    ({ child, exit }) => {
      child.kill();
      return Effect.promise(() => exit);
    },
  );
  yield* Effect.promise(() => untilPrinted(/process up/));
  return Redacted.make(near.href);
});

const steps = fencesOf(
  sectionOf(read("docs/scaling.md"), "## Behind PgBouncer").replaceAll(/^ {3}/gm, ""),
);
const [, settings] = steps;

/** The documented statements, adapted to this database. */
const settingsOf = (url: Redacted.Redacted) => {
  const { pathname, username } = new URL(Redacted.value(url));
  return settings!.text
    .replaceAll(
      "role parley in database parley",
      `role ${username} in database ${pathname.slice(1)}`,
    )
    .split("\n");
};

it.live("the documented steps work in order, with three servers starting at once", () =>
  Effect.gen(function* () {
    const { sql, url } = yield* freshDatabase();
    const near = yield* throughPgBouncer(url);
    assert.deepStrictEqual(
      steps.map(({ text }) => /parley migrate|alter role|pnpm@12 start/.exec(text)?.[0]),
      ["parley migrate", "alter role", "pnpm@12 start"],
    );
    const migrated = yield* Effect.promise(() =>
      here(["migrate"], { DATABASE_URL: Redacted.value(url) }),
    );
    assert.deepStrictEqual(migrated.code, 0, migrated.stderr);
    for (const statement of settingsOf(url)) yield* sql.unsafe(statement);
    const server = Layer.build(Layer.fresh(layerPostgres({ url: near })));
    yield* Effect.all([server, server, server], { concurrency: "unbounded" });
    const listed = yield* Effect.promise(() =>
      here(["chatbot", "list"], { DATABASE_URL: Redacted.value(near) }),
    );
    assert.deepStrictEqual(listed.code, 0, listed.stderr);
  }).pipe(Effect.scoped),
);

it.live(
  "starting fails with SQL that sets the role's missing settings, after which three servers start",
  () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      const start = (url: Redacted.Redacted) =>
        Layer.build(Layer.fresh(layerPostgres({ url }))).pipe(Effect.scoped);
      const refused = yield* Effect.flip(start(yield* throughPgBouncer(url)));
      const statements = refused.message.match(/alter role [^;]+;/g) ?? [];
      assert.deepStrictEqual(
        statements.map((text) => text.replaceAll('"', "")).toSorted(),
        // The default isolation level is already the one that Parley needs.
        settingsOf(url)
          .filter((text) => !text.includes("isolation"))
          .toSorted(),
      );
      for (const statement of statements) yield* sql.unsafe(statement);
      const near = yield* throughPgBouncer(url);
      yield* Effect.all([start(near), start(near), start(near)], { concurrency: "unbounded" });
      yield* sql.unsafe(
        statements.find((text) => text.includes("lock_timeout"))!.replace("1500ms", "2s"),
      );
      const changed = yield* Effect.flip(start(yield* throughPgBouncer(url)));
      assert.deepStrictEqual(changed.message.match(/set \w+/g), ["set lock_timeout"]);
    }).pipe(Effect.scoped),
);

it.live("a pooler that drops the settings of its clients is recognized, too", () =>
  Effect.gen(function* () {
    const { url } = yield* freshDatabase();
    const ignored =
      "ignore_startup_parameters = search_path, jit, default_transaction_isolation, lock_timeout, statement_timeout, idle_in_transaction_session_timeout";
    const near = yield* throughPgBouncer(url, ignored);
    const { message } = yield* Effect.flip(migratePostgres({ url: near }));
    assert.include(message, "its role lacks settings that Parley needs behind a pooler");
  }).pipe(Effect.scoped),
);

const behind = Layer.unwrap(
  Effect.gen(function* () {
    const { sql, url } = yield* freshDatabase();
    for (const statement of settingsOf(url)) yield* sql.unsafe(statement);
    return layerPostgresUnderTest({
      schema: "parley",
      url: yield* throughPgBouncer(url),
    });
  }),
);

layer(behind, { excludeTestServices: true })("PostgreSQL store behind PgBouncer", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
