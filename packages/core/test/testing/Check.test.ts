import { assert, it } from "@effect/vitest";
import { same } from "@parley/core/testing";
import { Effect } from "effect";

const page = (name: string, time: number) => ({
  total: 2,
  items: [{ name: "a" }, { name, createTime: new Date(time) }],
});

it.effect.each([
  [page("b", 0), page("B", 0), 'the list, at items[1].name: expected "B", but got "b"'],
  [
    page("b", 0),
    page("b", 1),
    'the list, at items[1].createTime: expected "1970-01-01T00:00:00.001Z", but got "1970-01-01T00:00:00.000Z"',
  ],
  [[1], [1, 2], "the list, at [1]: expected 2, but got undefined"],
  [Object.assign([], { length: 1 }), [1], "the list, at [0]: expected 1, but got undefined"],
  [Object.assign([], { length: 1 }), [], "the list: expected [], but got [null]"],
  [{ total: 0 }, [], 'the list: expected [], but got {"total":0}'],
  [{ name: null }, {}, "the list, at name: expected undefined, but got null"],
  [null, { total: 0 }, 'the list: expected {"total":0}, but got null'],
] as const)(
  "a failed check names the first difference between %j and %j",
  ([actual, expected, message]) =>
    Effect.gen(function* () {
      const failure = yield* Effect.flip(same("the list", actual, expected));
      assert.strictEqual(failure.message, message);
    }),
);
