import { storeChecks } from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { TestClock } from "effect/testing";
import { underTest } from "../packages/store-memory/test/MemoryUnderTest.ts";

const memory = makeMemory();
const store = Layer.provideMerge(underTest(memory), layerMemoryOf(memory));

const all = Effect.forEach(storeChecks, ({ name, run }) =>
  Effect.match(run, {
    onFailure: (error) => console.log(name, error),
    onSuccess: () => console.log(name),
  }),
);
await Effect.runPromise(all.pipe(Effect.provide(store), Effect.provide(TestClock.layer())));
