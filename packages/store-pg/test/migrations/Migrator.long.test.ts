import { assert, it } from "@effect/vitest";
import { Effect, Fiber, Redacted } from "effect";
import { SqlClient } from "effect/sql";
import { transportOf, type Transport } from "../../src/connections/DatabaseAddress.ts";
import { makeMigrationClient } from "../../src/connections/PgPools.ts";
import { migrate, migrations } from "../../src/migrations/Migrator.ts";
import { hold } from "../hold.ts";
import { clientOf, freshDatabase, freshSchema, optionsOf, start } from "../PostgresUnderTest.ts";

const later = {
  id: migrations.length + 1,
  name: "later",
  text: "alter table entry add column later int;",
};

type Options = ReturnType<typeof optionsOf>;

const migrateTo = (options: Options, migration: typeof later) =>
  migrate(options.schema, [...migrations, migration]).pipe(
    Effect.provideServiceEffect(
      SqlClient.SqlClient,
      makeMigrationClient({ ...options, maxConnections: 6 }),
    ),
    Effect.scoped,
  );

/** A migrated schema, a migration that changes a table, and a session whose open transaction has read the table. */
const makeBlockedMigration = Effect.gen(function* () {
  const options = optionsOf(freshSchema());
  yield* start(options);
  const url = new URL(Redacted.value(options.url));
  url.searchParams.set("application_name", "nightly report");
  const report = yield* clientOf(options.schema, 1, Redacted.make(url.href));
  const { release } = yield* hold(report, "select from entry", []);
  return { sql: yield* clientOf(options.schema), migration: migrateTo(options, later), release };
});

it.live(
  "a blocked migration lets readers through between its attempts, and its error names the blocking session",
  () =>
    Effect.gen(function* () {
      const { migration, sql } = yield* makeBlockedMigration;
      const migrating = yield* Effect.forkChild(Effect.flip(migration));
      let reads = 0;
      const reader = yield* Effect.forkChild(
        sql.unsafe("select from entry").pipe(
          Effect.tap(() => Effect.sync(() => reads++)),
          Effect.delay("100 millis"),
          Effect.forever,
        ),
      );
      const error = yield* Fiber.join(migrating);
      yield* Fiber.interrupt(reader);
      assert.match(
        error.message,
        /locked by process \d+, "nightly report", idle in transaction, since 2\d{3}-.*Z: end every session/,
      );
      // The migration pauses three times, for three seconds each.
      assert.isAbove(reads, 30);
    }).pipe(Effect.scoped),
  60_000,
);

it.live("a blocked migration continues when the blocking transaction has ended", () =>
  Effect.gen(function* () {
    const { migration, release, sql } = yield* makeBlockedMigration;
    yield* Effect.all([migration, Effect.delay(release, "4 seconds")], { concurrency: 2 });
    yield* sql.unsafe("select later from entry");
  }).pipe(Effect.scoped),
);

it.live("a migration that is aborted because of a deadlock is retried", () =>
  Effect.gen(function* () {
    const options = optionsOf(freshSchema());
    yield* start(options);
    const sql = yield* clientOf(options.schema);
    const text = "alter table chat add column later int;\nalter table entry add column later int;";
    const migrating = yield* sql.withTransaction(
      Effect.gen(function* () {
        yield* sql.unsafe("select from entry");
        const fiber = yield* Effect.forkScoped(migrateTo(options, { ...later, text }));
        yield* Effect.sleep("500 millis");
        // The migration has waited longer, so PostgreSQL aborts the migration.
        yield* sql.unsafe("select from chat");
        return fiber;
      }),
    );
    yield* Fiber.join(migrating);
    yield* sql.unsafe("select chat.later from chat cross join entry");
  }).pipe(Effect.scoped),
);

it.live("a migration behind a pooler is not subject to its role's timeouts", () =>
  Effect.gen(function* () {
    const { name, sql, url } = yield* freshDatabase();
    yield* start({ url });
    for (const setting of ["search_path = parley", "statement_timeout = '200ms'"])
      yield* sql.unsafe(`alter role current_user in database ${name} set ${setting}`);
    const slow = { ...later, text: "select pg_sleep(1);" };
    (transportOf(url) as Transport).isPooler = true;
    yield* migrate("parley", [...migrations, slow]).pipe(
      Effect.provideServiceEffect(
        SqlClient.SqlClient,
        makeMigrationClient({ url, schema: "parley", maxConnections: 6 }),
      ),
      Effect.scoped,
    );
  }).pipe(Effect.scoped),
);
