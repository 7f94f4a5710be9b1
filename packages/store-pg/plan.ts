import * as PgClient from "@effect/sql-pg/PgClient";
import { Effect, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { newestChats } from "@parley/core";
import { layerPostgres } from "./src/index.ts";
import { byText, filtered, indexed } from "./src/ChatPages.ts";
import { fillChats, fillEntries, settle } from "./test/fill.ts";
const N = Number(process.argv[2] ?? 100000);
const schema = "flat_" + N;
const url = Redacted.make("postgres://postgres@127.0.0.1:55441/postgres");
const q = (m: any) => ({ ...newestChats, ...m });
await Effect.runPromise(Effect.scoped(Effect.gen(function* () {
  const sql = yield* PgClient.make({ url, startupParameters: { search_path: schema, plan_cache_mode: "force_custom_plan" } }).pipe(Effect.provide(Reactivity.layer));
  if (process.argv[3] === "fill") {
    yield* Effect.provide(Effect.void, layerPostgres({ url, schema }));
    yield* fillChats(sql, 1_000_001, N); yield* fillEntries(sql, 1_000_001, N); yield* settle(sql);
  }
  for (const wanted of [q({ orderBy: [{ field: "name", descending: false }] }), q({ page: N / 25, orderBy: [{ field: "name", descending: false }] })]) {
    const { text, values } = indexed(1_000_001, wanted, byText(wanted.orderBy)!);
    for (const r of yield* sql.unsafe<any>("explain (analyze, buffers) " + text, values)) console.log(r["QUERY PLAN"]);
  }
})));
