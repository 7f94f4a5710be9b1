/**
 * The store behind PgBouncer, as docs/scaling.md describes it.
 */
import { assert, it, layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer, Redacted, Result } from "effect";
import {
  clientOf,
  freshDatabase,
  freshSchema,
  layerPostgresUnderTest,
  optionsOf,
} from "../packages/store-pg/test/PostgresUnderTest.ts";
import { startPgBouncer } from "./programs/PgBouncer.ts";

/** A server's settings by way of PgBouncer. */
const pooled = Effect.fnUntraced(function* (schema: string, url = optionsOf(schema).url) {
  const { url: near } = yield* Effect.acquireRelease(
    Effect.promise(() => startPgBouncer(Redacted.value(url))),
    ({ close }) => Effect.promise(close),
  );
  return { schema, url: Redacted.make(near), listen: false, prepare: false };
});

for (const { setting, got } of [
  { setting: "search_path = ''", got: "does not lead to the schema" },
  { setting: "search_path = public, SCHEMA", got: "does not lead to the schema" },
  { setting: "search_path = SCHEMA", got: "" },
  {
    setting: "default_transaction_isolation = 'repeatable read'",
    got: 'connections have the isolation "repeatable read"',
  },
]) {
  const what = got === "" ? "serves" : "is refused";
  it.live(`a server whose role has ${setting} ${what}`, () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      const { name, sql, url } = yield* freshDatabase();
      const set = `alter database ${name} set`;
      yield* sql.unsafe(`${set} search_path = ${schema}`);
      yield* sql.unsafe(`${set} ${setting.replace("SCHEMA", schema)}`);
      const started = yield* Effect.result(Layer.build(layerPostgres(yield* pooled(schema, url))));
      const told = Result.isFailure(started) ? started.failure.message : "";
      assert.include(told, got.replaceAll("SCHEMA", schema));
      const tables = yield* sql.unsafe("select from pg_tables where tablename = 'chat'");
      assert.lengthOf(tables, got === "" ? 1 : 0);
    }).pipe(Effect.scoped),
  );
}

const withRole = Layer.unwrap(
  Effect.gen(function* () {
    const schema = freshSchema();
    const sql = yield* clientOf(schema);
    yield* sql.unsafe(`alter role current_user set search_path = ${schema}`);
    yield* sql.unsafe(
      "alter role current_user set default_transaction_isolation = 'read committed'",
    );
    yield* sql.unsafe("alter role current_user set jit = off");
    return layerPostgresUnderTest(yield* pooled(schema));
  }),
);

layer(withRole, { excludeTestServices: true })("PostgreSQL store behind PgBouncer", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
