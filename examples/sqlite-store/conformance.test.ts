/**
 * The whole conformance kit over the SQLite store.
 */
import { layer } from "@effect/vitest";
import { storeChecks, storeUnderTest } from "@parley/core/testing";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll } from "vitest";
import { layerSqlite } from "./SqliteStore.ts";

const folder = mkdtempSync(join(tmpdir(), "parley-sqlite-"));
afterAll(() => rmSync(folder, { recursive: true }));

layer(storeUnderTest(layerSqlite(join(folder, "store.db"))))("SQLite store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
