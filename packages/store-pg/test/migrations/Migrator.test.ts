import { assert, it } from "@effect/vitest";
import { Effect, Redacted } from "effect";
import { migrations } from "../../src/migrations/Migrator.ts";
import { inject } from "vitest";
import { inSchema } from "../fixtures.ts";
import { freshDatabase, optionsOf, refusal, start } from "../PostgresUnderTest.ts";

it.live("several servers that start on an empty database create the schema once", () =>
  Effect.gen(function* () {
    const { sql, url } = yield* freshDatabase();
    const options = { url };
    const starts = Array.from({ length: 4 }, () => start(options));
    yield* Effect.all(starts, { concurrency: "unbounded" });
    const rows = yield* sql.unsafe("select migration_id as id, name from parley_schema");
    assert.deepStrictEqual(
      rows,
      migrations.map(({ id, name }) => ({ id, name })),
    );
  }),
);

inSchema(
  "a server that starts on an up-to-date schema does not wait for a dump",
  function* (sql, schema) {
    // A dump takes this lock.
    const lock = sql.unsafe("lock table parley_schema in access share mode");
    yield* sql.withTransaction(Effect.andThen(lock, start(optionsOf(schema))));
  },
);

it.live("a server that may not create its schema names the command for the owner to run", () =>
  Effect.gen(function* () {
    const { name } = yield* freshDatabase();
    const url = new URL(inject("roleUrls").server);
    url.pathname = `/${name}`;
    assert.include(
      yield* refusal({ url: Redacted.make(url.href) }),
      'run "parley migrate" with the owner',
    );
  }),
);

for (const [what, statement, reason] of [
  [
    "a newer schema",
    "insert into parley_schema (migration_id, name) values (2, 'later')",
    "has migration 2, which this version",
  ],
  [
    "a schema that other SQL created",
    "update parley_schema set name = 'initial_1f2e3d4c'",
    "was not created by the migrations of this version",
  ],
  [
    "a schema with another program's table",
    "drop table parley_schema",
    "set the option schema (on a server PARLEY_SCHEMA) to another schema",
  ],
] as const)
  inSchema(`a server refuses to start on ${what}`, function* (sql, schema) {
    yield* sql.unsafe(statement);
    assert.include(yield* refusal(optionsOf(schema)), reason);
  });

inSchema(
  "the privileges on the audit log allow even the owner only to read it and to add entries",
  function* (sql) {
    for (const statement of [
      "delete from audit",
      "update audit set actor = ''",
      "truncate audit",
    ]) {
      const { reason } = yield* Effect.flip(sql.unsafe(statement));
      assert.strictEqual(reason._tag, "AuthorizationError");
    }
  },
);
