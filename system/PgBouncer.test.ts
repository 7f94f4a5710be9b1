/**
 * The store behind PgBouncer, as docs/scaling.md describes it.
 */
import { assert, it, layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";
import {
  clientOf,
  freshSchema,
  layerPostgresUnderTest,
  optionsOf,
} from "../packages/store-pg/test/PostgresUnderTest.ts";
import { startPgBouncer } from "./PgBouncer.ts";

/** A server's settings by way of PgBouncer. */
const pooled = Effect.fnUntraced(function* (schema: string) {
  const { url } = optionsOf(schema);
  const { url: near } = yield* Effect.acquireRelease(
    Effect.promise(() => startPgBouncer(Redacted.value(url))),
    ({ close }) => Effect.promise(close),
  );
  return { schema, url: Redacted.make(near), listen: false, prepare: false };
});

it.live("a server is refused that would look for its tables elsewhere", () =>
  Effect.gen(function* () {
    const schema = freshSchema();
    const refused = yield* Effect.flip(Layer.build(layerPostgres(yield* pooled(schema))));
    assert.include(refused.message, `asks for the schema "${schema}" gets "$user"`);
    const sql = yield* clientOf(schema);
    assert.isEmpty(yield* sql.unsafe("select from pg_tables where tablename = 'chat'"));
  }).pipe(Effect.scoped),
);

const withRole = Layer.unwrap(
  Effect.gen(function* () {
    const schema = freshSchema();
    const sql = yield* clientOf(schema);
    yield* sql.unsafe(`alter role current_user set search_path = ${schema}`);
    yield* sql.unsafe("alter role current_user set jit = off");
    return layerPostgresUnderTest(yield* pooled(schema));
  }),
);

layer(withRole)("PostgreSQL store behind PgBouncer", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
