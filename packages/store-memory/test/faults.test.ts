/**
 * How strong the conformance kit is: it must find the faults of stores that break one promise each. Many more are in
 * `faults.long.test.ts`.
 */
import { assert, describe, it } from "@effect/vitest";
import { modelCheck } from "@parley/core/testing";
import { Effect } from "effect";
import { found, foundInRegistry } from "./Finding.ts";
import { faults } from "./faults/Faults.ts";
import { moreFaults } from "./faults/MoreFaults.ts";

/** Some of those that random sequences find alone, and shrink. */
const foundBySequences = [
  "the total of all chats still counts those that were erased",
  "an erasure of a user's chats takes those without a user, too",
  "chats without an entry are never idle",
  "rows that tie come in ascending order of id in a descending list too",
  "the key of another request makes another chat",
];

describe("the conformance kit", () => {
  it.effect("finds nothing wrong with a sound store", () =>
    Effect.gen(function* () {
      assert.isNull(yield* found({ name: "none", break: (stores) => stores }));
    }),
  );

  it.effect("finds nothing wrong with a sound registry", () =>
    Effect.map(foundInRegistry({ name: "none", break: () => ({}) }), (broken) =>
      assert.isNull(broken),
    ),
  );

  const all = [...faults, ...moreFaults];
  for (const fault of all) {
    it.effect(`finds: ${fault.name}`, () =>
      Effect.map(found(fault), (broken) => assert.isNotNull(broken)),
    );
  }
  for (const name of foundBySequences) {
    it.effect(`finds by a short sequence of commands: ${name}`, () =>
      Effect.gen(function* () {
        const fault = all.find((fault) => fault.name === name)!;
        const broken = yield* found(fault, [modelCheck({ seed: 1, runs: 100 })]);
        const commands = broken?.failure.match(/_tag/g) ?? [];
        assert.isAtLeast(commands.length, 2, broken?.failure);
        assert.isAtMost(commands.length, 4, broken?.failure);
      }),
    );
  }
});
