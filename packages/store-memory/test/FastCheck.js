/** The model's commands, drawn and shrunk by fast-check. */
import { followsModel } from "@parley/core/testing";
import { Effect } from "effect";
import fc from "fast-check";
const text = fc.constantFrom(null, "", "a", "B", "b", "ab", "Äb", "%", "a_", "\uffee", "😀");
const small = fc.integer({ min: 0, max: 9 });
const second = fc.boolean();
const field = fc.record({ field: small, descending: fc.boolean() });
const page = {
  order: fc.array(field, { minLength: 1, maxLength: 3 }),
  limit: small,
  page: small,
  id: fc.option(small),
};
const tag = (tag) => fc.constant(tag);
const command = fc.oneof(
  fc.record({ _tag: tag("Create"), second, name: text, userRef: text, hello: text }),
  fc.record({ _tag: tag("CreateWithKey"), second, name: text, key: small }),
  fc.record({ _tag: tag("Ask"), second, chat: fc.option(small), question: text }),
  fc.record({ _tag: tag("List"), second, ...page, search: text, userRef: text }),
  fc.record({ _tag: tag("History"), second, ...page, chat: small }),
  fc.record({
    _tag: tag("Erase"),
    second,
    which: fc.constantFrom("chat", "userRef", "idle"),
    chat: small,
  }),
  fc.record({ _tag: tag("Move") }),
  fc.record({ _tag: tag("Pass") }),
);
/** The shortest sequence found over which the store and plain arrays disagree; `null` when there is none. */
export const disagreement = Effect.fnUntraced(function* (options) {
  const run = Effect.runPromiseWith(yield* Effect.context());
  const follows = fc.asyncProperty(fc.array(command, { maxLength: 40, size: "max" }), (commands) =>
    run(followsModel(commands)),
  );
  const { counterexample } = yield* Effect.promise(() => fc.check(follows, options));
  return counterexample === null ? null : counterexample[0];
});
//# sourceMappingURL=FastCheck.js.map
