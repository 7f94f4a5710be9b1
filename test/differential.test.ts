/**
 * SQLite and PostgreSQL give the same results for random commands as the memory store. `PARLEY_RANDOM_COMMANDS` sets
 * roughly how many commands run, a twentieth of them on PostgreSQL, which takes several times as long.
 * `PARLEY_RANDOM_SEED` sets which.
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

const { PARLEY_RANDOM_COMMANDS = "500", PARLEY_RANDOM_SEED: seed } = process.env;
const total = Number(PARLEY_RANDOM_COMMANDS);
const checks = (commands: number) =>
  randomChecks({
    oracle: layerMemoryOf(makeMemory()),
    commands,
    ...(seed !== undefined && { seed: Number(seed) }),
  });
const timeout = 60_000 + total * 50;

const folder = mkdtempSync(join(tmpdir(), "parley-differential-"));
afterAll(() => rmSync(folder, { recursive: true }));

layer(storeUnderTest(layerSqlite({ file: join(folder, "store.db") })))("SQLite", (it) => {
  for (const { name, run } of checks(total * 0.95)) it.effect(name, () => run, timeout);
});

layer(layerPostgresUnderTest(), { excludeTestServices: true })("PostgreSQL", (it) => {
  for (const { name, run } of checks(total * 0.05)) it.effect(name, () => run, timeout);
});
