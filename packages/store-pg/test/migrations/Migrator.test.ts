import { assert, describe, it } from "@effect/vitest";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";
import { inject } from "vitest";
import { clientOf, freshDatabase, freshSchema, optionsOf } from "../PostgresUnderTest.ts";

type Options = Parameters<typeof layerPostgres>[0];

const start = (options: Options) => Effect.scoped(Layer.build(layerPostgres(options)));

/** Why a start with the options fails. */
const refusal = (options: Options) =>
  Effect.map(Effect.flip(start(options)), ({ message }) => message);

/** A schema of its own with the statements run in it. */
const withSchema = Effect.fnUntraced(function* (statements: ReadonlyArray<string>) {
  const options = optionsOf(freshSchema());
  const sql = yield* clientOf(options.schema);
  yield* sql.unsafe(`create schema ${options.schema}`);
  for (const statement of statements) yield* sql.unsafe(statement);
  return { options, sql };
});

describe("a start", () => {
  it.live("of several servers on an empty database creates the schema once", () =>
    Effect.gen(function* () {
      const { sql, ...options } = yield* freshDatabase();
      const starts = Array.from({ length: 4 }, () => start(options));
      yield* Effect.all(starts, { concurrency: "unbounded" });
      const rows = yield* sql.unsafe("select migration_id as id, name from parley_schema");
      assert.deepStrictEqual(rows, [
        { id: 1, name: "initial" },
        { id: 2, name: "keys" },
      ]);
    }),
  );

  it.live("on a current schema waits for no dump", () =>
    Effect.gen(function* () {
      const { options, sql } = yield* withSchema([]);
      yield* start(options);
      // As a dump does.
      yield* sql.withTransaction(
        Effect.andThen(sql.unsafe("lock table parley_schema in access share mode"), start(options)),
      );
    }),
  );

  it.live("of a role that may not create the schema names the command of the owner", () =>
    Effect.gen(function* () {
      const { name } = yield* freshDatabase();
      const url = new URL(inject("roleUrls").server);
      url.pathname = `/${name}`;
      assert.include(
        yield* refusal({ url: Redacted.make(url.href) }),
        "run DATABASE_URL=<owner> parley migrate",
      );
    }),
  );

  it.live("refuses a newer schema", () =>
    Effect.gen(function* () {
      const { options, sql } = yield* withSchema([]);
      yield* start(options);
      yield* sql.unsafe("insert into parley_schema (migration_id, name) values (3, 'later')");
      assert.include(yield* refusal(options), "has migration 3, which this version");
    }),
  );

  it.live("on a table of another program with the name of one of ours names PARLEY_SCHEMA", () =>
    Effect.gen(function* () {
      const { options } = yield* withSchema(["create table chat (id int)"]);
      assert.include(yield* refusal(options), "name another schema in PARLEY_SCHEMA");
    }),
  );
});

it.live("the audit is append-only, also for its owner", () =>
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
