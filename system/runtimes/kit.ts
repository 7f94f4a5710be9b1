/**
 * Runs the conformance kit, in a program that has imported every package that runs everywhere.
 */
import * as client from "@parley/client";
import * as core from "@parley/core";
import * as promise from "@parley/core/promise";
import type { StorePorts } from "@parley/core/ports";
import { storeChecks, storeUnderTest } from "@parley/core/testing";
import { randomChecks } from "@parley/core/testing/random";
import * as http from "@parley/http";
import * as contract from "@parley/http/contract";
import * as llm from "@parley/llm";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Cause, Effect, Exit, type Layer } from "effect";
import { TestClock } from "effect/testing";

const checks = [
  ...storeChecks,
  ...randomChecks({ oracle: layerMemoryOf(makeMemory()), seed: 7, commands: 500 }),
];

/** Runs the kit on the store, and returns its failures. */
const runKit = <E>(store: Layer.Layer<StorePorts, E>): Promise<ReadonlyArray<string>> =>
  Effect.forEach(checks, ({ name, run }) =>
    Effect.map(Effect.exit(run), (exit) =>
      Exit.isSuccess(exit) ? [] : [`${name}: ${Cause.pretty(exit.cause)}`],
    ),
  ).pipe(
    Effect.map((failures) => failures.flat()),
    Effect.provide(storeUnderTest(store)),
    Effect.provide(TestClock.layer()),
    Effect.runPromise,
  );

/** Runs the kit on the memory store and on a store in SQLite. */
export const report = async <E>(sqlite: Layer.Layer<StorePorts, E>): Promise<string> =>
  JSON.stringify({
    // Otherwise, the bundler would leave out the packages that the kit does not need.
    exports: Object.keys({ ...client, ...core, ...promise, ...http, ...contract, ...llm }).length,
    memory: await runKit(layerMemoryOf(makeMemory())),
    sqlite: await runKit(sqlite),
  });
