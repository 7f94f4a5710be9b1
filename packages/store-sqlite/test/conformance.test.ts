/**
 * Runs the whole conformance kit on the SQLite store.
 */
import { layer } from "@effect/vitest";
import { storeChecks, storeUnderTest } from "@parley/core/testing";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { layerSqlite } from "@parley/store-sqlite";

const folder = mkdtempSync(join(tmpdir(), "parley-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true }));

layer(storeUnderTest(layerSqlite({ file: join(folder, "store.db") })))("SQLite store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
