import { assert, it } from "@effect/vitest";
import { Effect, Redacted } from "effect";
import { migrations } from "../../src/migrations/Migrator.ts";
import { inject } from "vitest";
import {
  clientOf,
  freshDatabase,
  freshSchema,
  optionsOf,
  refusal,
  start,
} from "../PostgresUnderTest.ts";

/** Creates a schema, and runs the statements in it. */
const withSchema = Effect.fnUntraced(function* (statements: ReadonlyArray<string>) {
  const options = optionsOf(freshSchema());
  const sql = yield* clientOf(options.schema);
  yield* sql.unsafe(`create schema ${options.schema}`);
  for (const statement of statements) yield* sql.unsafe(statement);
  return { options, sql };
});

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

it.live("a server that starts on an up-to-date schema does not wait for a dump", () =>
  Effect.gen(function* () {
    const { options, sql } = yield* withSchema([]);
    yield* start(options);
    // A dump takes this lock.
    yield* sql.withTransaction(
      Effect.andThen(sql.unsafe("lock table parley_schema in access share mode"), start(options)),
    );
  }),
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

it.live("a server refuses to start on a newer schema", () =>
  Effect.gen(function* () {
    const { options, sql } = yield* withSchema([]);
    yield* start(options);
    yield* sql.unsafe("insert into parley_schema (migration_id, name) values (2, 'later')");
    assert.include(yield* refusal(options), "has migration 2, which this version");
  }),
);

it.live("a server refuses to start on a schema that other SQL created", () =>
  Effect.gen(function* () {
    const { options, sql } = yield* withSchema([]);
    yield* start(options);
    yield* sql.unsafe("update parley_schema set name = 'initial_1f2e3d4c'");
    assert.include(yield* refusal(options), "was not created by the migrations of this version");
  }),
);

it.live("a server that finds another program's table in its schema suggests PARLEY_SCHEMA", () =>
  Effect.gen(function* () {
    const { options } = yield* withSchema(["create table chat (id int)"]);
    assert.include(
      yield* refusal(options),
      "set the option schema (on a server PARLEY_SCHEMA) to another schema",
    );
  }),
);

it.live(
  "the privileges on the audit log allow even the owner only to read it and to add entries",
  () =>
    Effect.gen(function* () {
      const { options, sql } = yield* withSchema([]);
      yield* start(options);
      for (const statement of [
        "delete from audit",
        "update audit set actor = ''",
        "truncate audit",
      ]) {
        const { reason } = yield* Effect.flip(sql.unsafe(statement));
        assert.strictEqual(reason._tag, "AuthorizationError");
      }
    }),
);
