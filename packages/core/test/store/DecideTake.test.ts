import { assert, it } from "@effect/vitest";
import { decideTake } from "@parley/core/ports";
import { takeStates } from "./takeStates.ts";

it.each(takeStates(1_000_000_000_000, 1))("decides on %s", (_, state, decision) => {
  assert.deepStrictEqual(decideTake(state), decision);
});
