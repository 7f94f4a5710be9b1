import { layer } from "@effect/vitest";
import { storeChecks, storeUnderTest } from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";

layer(storeUnderTest(layerMemoryOf(makeMemory())))("memory store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
