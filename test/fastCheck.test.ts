/**
 * The model's commands through fast-check, as examples/fast-check.ts draws them: it finds nothing wrong with our
 * stores, and shrinks what it finds in faulty ones to a few commands.
 */
import { assert, it, layer } from "@effect/vitest";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import fc from "fast-check";
import { drawn } from "../examples/fast-check.ts";
import { blindFaults } from "../packages/store-memory/test/faults/BlindFaults.ts";
import { faults } from "../packages/store-memory/test/faults/Faults.ts";
import { moreFaults } from "../packages/store-memory/test/faults/MoreFaults.ts";
import { layerFaulty } from "../packages/store-memory/test/FaultyStore.ts";
import { underTest } from "../packages/store-memory/test/MemoryUnderTest.ts";
import { layerPostgresUnderTest } from "../packages/store-pg/test/PostgresUnderTest.ts";

const memory = makeMemory();
const layerMemory = Layer.provideMerge(underTest(memory), layerMemoryOf(memory));

for (const [name, store, numRuns, excludeTestServices] of [
  ["memory", layerMemory, 200, false],
  // By the real clock, as statements take time.
  ["PostgreSQL", layerPostgresUnderTest(), 30, true],
] as const) {
  layer(store, { excludeTestServices })(`${name} store`, (it) => {
    it.effect("agrees with plain arrays", () =>
      Effect.gen(function* () {
        const details = yield* drawn({ numRuns });
        assert.isFalse(details.failed, fc.defaultReportMessage(details));
      }),
    );
  });
}

/** Those of the faults that show in nearly every sequence long enough. */
const shown = [
  "rows that tie come in ascending order of id in a descending list too",
  "absent names and user references come last in descending order too",
  "an empty search leaves out the chats without a name",
  "the total of a history filtered by id is that of the whole history",
  "the total of all chats still counts those that were erased",
  "lists tell the time of a chat in whole seconds, its creation does not",
  "the total of a page past the end is 0",
  "the total ignores the search",
  "the key of another request makes another chat",
  "an erasure of a user's chats takes those without a user, too",
];

it.effect.each(shown)("finds by a few commands: %s", (name) =>
  Effect.gen(function* () {
    const fault = [...faults, ...blindFaults, ...moreFaults].find((fault) => fault.name === name)!;
    // Always the same sequences: from a few of all it would shrink to no more than eight commands.
    const details = yield* Effect.provide(drawn({ seed: 1, numRuns: 500 }), layerFaulty(fault));
    const commands = details.counterexample?.[0] ?? [];
    assert.isAtLeast(commands.length, 1, fc.defaultReportMessage(details));
    assert.isAtMost(commands.length, 4, fc.defaultReportMessage(details));
  }),
);
