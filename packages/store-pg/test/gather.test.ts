import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { gather } from "../src/Gather.ts";

it.effect("of writes that are gathered one that throws fails alone", () =>
  Effect.gen(function* () {
    const write = yield* gather(
      (_, items: ReadonlyArray<number>) => {
        if (items.includes(3)) throw new Error("three");
        return Effect.as(Effect.yieldNow, items);
      },
      { writers: 1, most: 10, waiting: 10, full: "full" },
    );
    const exits = yield* Effect.forEach([1, 2, 3, 4, 5], (item) => Effect.exit(write(0, item)), {
      concurrency: "unbounded",
    });
    assert.deepStrictEqual(
      exits.map(({ _tag }) => _tag),
      ["Success", "Success", "Failure", "Success", "Success"],
    );
  }).pipe(Effect.scoped),
);
