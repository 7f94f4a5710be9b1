import { it } from "@effect/vitest";
import { rowsChecks } from "@parley/core/testing";
import { Effect } from "effect";
import { makePools } from "../src/connections/PgPools.ts";
import { makeRows } from "../src/PgRows.ts";
import { freshSchema, optionsOf, start } from "./PostgresUnderTest.ts";

it.live("transactions are all or nothing, and imports are complete, in the database", () =>
  Effect.gen(function* () {
    const options = { ...optionsOf(freshSchema()), maxConnections: 5 };
    yield* start(options);
    const rows = makeRows(yield* makePools(options));
    for (const { run } of rowsChecks(rows)) yield* run;
  }).pipe(Effect.scoped),
);
