/**
 * SQLite and PostgreSQL give the same results for random commands as the memory store.
 */
import { layer } from "@effect/vitest";
import { storeUnderTest } from "@parley/core/testing";
import { randomChecks } from "@parley/core/testing/random";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { layerSqlite } from "@parley/store-sqlite";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { layerPostgresUnderTest } from "../packages/store-pg/test/PostgresUnderTest.ts";

const folder = mkdtempSync(join(tmpdir(), "parley-differential-"));
afterAll(() => rmSync(folder, { recursive: true }));
const checks = randomChecks({ oracle: layerMemoryOf(makeMemory()) });

layer(storeUnderTest(layerSqlite({ file: join(folder, "store.db") })))("SQLite", (it) => {
  for (const { name, run } of checks) it.effect(name, () => run, 200_000);
});

layer(layerPostgresUnderTest(), { excludeTestServices: true })("PostgreSQL", (it) => {
  for (const { name, run } of checks) it.effect(name, () => run, 200_000);
});
