/**
 * The model's commands through fast-check, as examples/fast-check.ts draws them: it finds nothing wrong with our
 * stores, and shrinks what it finds in faulty ones to a few commands.
 */
import { assert, it, layer } from "@effect/vitest";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { disagreement } from "../examples/fast-check.ts";
import { faults } from "../packages/store-memory/test/faults/Faults.ts";
import { layerFaulty } from "../packages/store-memory/test/FaultyStore.ts";
import { underTest } from "../packages/store-memory/test/MemoryUnderTest.ts";
import { layerPostgresUnderTest } from "../packages/store-pg/test/PostgresUnderTest.ts";

const memory = makeMemory();

layer(Layer.provideMerge(underTest(memory), layerMemoryOf(memory)))("memory store", (it) => {
  it.effect("agrees with plain arrays", () =>
    Effect.gen(function* () {
      assert.isNull(yield* disagreement({ numRuns: 200 }));
    }),
  );
});

layer(layerPostgresUnderTest())("PostgreSQL store", (it) => {
  it.effect("agrees with plain arrays", () =>
    Effect.gen(function* () {
      assert.isNull(yield* disagreement({ numRuns: 30 }));
    }),
  );
});

/** Those of the faults that a sequence of commands can show. */
const shown = [
  "rows that tie come in ascending order of id in a descending list too",
  "absent names and user references come last in descending order too",
  "text sorts by UTF-16 code units",
  "an empty search leaves out the chats without a name",
  "the total of a history filtered by id is that of the whole history",
  "the total of all chats still counts those that were erased",
  "ids of chats come from a sequence that each of two connections caches a part of",
  "lists tell the time of a chat in whole seconds, its creation does not",
  "chats without an entry are never idle",
];

it.effect.each(shown)("finds by a few commands: %s", (name) =>
  Effect.gen(function* () {
    const fault = faults.find((fault) => fault.name === name)!;
    const commands = yield* Effect.provide(
      disagreement({ seed: 1, numRuns: 200 }),
      layerFaulty(fault),
    );
    assert.isNotNull(commands);
    assert.isAtLeast(commands.length, 2);
    assert.isAtMost(commands.length, 4, JSON.stringify(commands));
  }),
);
