import { layer } from "@effect/vitest";
import { storeChecks } from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Layer } from "effect";
import { underTest } from "./MemoryUnderTest.ts";

const memory = makeMemory();

layer(Layer.provideMerge(underTest(memory), layerMemoryOf(memory)))("memory store", (it) => {
  for (const { name, run } of storeChecks) it.effect(name, () => run);
});
