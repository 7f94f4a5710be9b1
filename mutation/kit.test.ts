/** Runs the conformance kit on the memory store that Stryker changes. The unchanged one is the oracle. */
import { layer } from "@effect/vitest";
import { rowsChecks, storeChecks, storeUnderTest } from "@parley/core/testing";
import { randomChecks } from "@parley/core/testing/random";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import * as unchanged from "unchanged/store-memory";
import { makeRows } from "../packages/store-memory/src/MemoryRows.ts";

const oracle = unchanged.layerMemoryOf(unchanged.makeMemory());
const random = randomChecks({ oracle, seed: 1, commands: 3_000, shrinkMillis: 0 });

layer(storeUnderTest(layerMemoryOf(makeMemory())))("memory store", (it) => {
  for (const { name, run } of [...storeChecks, ...rowsChecks(makeRows(makeMemory())), ...random])
    it.effect(name, () => run);
});
