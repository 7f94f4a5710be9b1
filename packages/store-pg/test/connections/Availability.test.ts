import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { TestClock } from "effect/testing";
import { watchAvailability } from "../../src/connections/Availability.ts";

it.effect("an unexpected error in a probe of the database does not end the probes", () =>
  Effect.gen(function* () {
    let probes = 0;
    const use = () => {
      probes++;
      return Effect.die("a mistake");
    };
    const state = { isUnavailable: false, replaceBefore: 0 };
    yield* watchAvailability({ use }, Effect.never, state, () => Effect.void);
    yield* TestClock.adjust("3 seconds");
    assert.isAtLeast(probes, 3);
  }),
);
