import { storeUnderTest } from "@parley/core/testing";
import { randomChecks } from "@parley/core/testing/random";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Effect, Cause, Exit, Layer } from "effect";
import { TestClock } from "effect/testing";
const other =
  process.argv[2] === "sqlite"
    ? (await import("../store-sqlite/src/index.ts")).layerSqlite({
        file: `/tmp/parley/kit-probe/try-${process.pid}.db`,
      })
    : layerMemoryOf(makeMemory());
const t = performance.now();
const [{ run, name }] = randomChecks({
  oracle: layerMemoryOf(makeMemory()),
  seed: Number(process.argv[3] ?? 42),
  commands: Number(process.argv[4] ?? 2000),
}) as any;
const exit = await Effect.runPromiseExit(
  run.pipe(Effect.provide(storeUnderTest(other as any)), Effect.provide(TestClock.layer())) as any,
);
console.log(
  name,
  Math.round(performance.now() - t),
  "ms",
  Exit.isSuccess(exit) ? "ok" : Cause.pretty(exit.cause).slice(0, 4000),
);
process.exit();
