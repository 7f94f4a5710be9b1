import { storeChecks, storeUnderTest } from "@parley/core/testing";
import { randomChecks } from "@parley/core/testing/random";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Cause, Effect, Exit } from "effect";
import { TestClock } from "effect/testing";

const store = storeUnderTest(layerMemoryOf(makeMemory()));
const random = randomChecks({ oracle: layerMemoryOf(makeMemory()) });

const all = Effect.forEach([...storeChecks, ...random], ({ name, run }) =>
  Effect.map(Effect.exit(run), (exit) => {
    if (Exit.isSuccess(exit)) return console.log(name);
    console.error(`${name}: ${Cause.pretty(exit.cause)}`);
    process.exitCode = 1;
  }),
);
await Effect.runPromise(all.pipe(Effect.provide(store), Effect.provide(TestClock.layer())));
