import {
  followsModel,
  modelTexts,
  type ModelCommand,
  type ModelServices,
} from "@parley/core/testing";
import { Effect } from "effect";
import fc from "fast-check";

const maybe = <A>(one: fc.Arbitrary<A>) => fc.option(one, { freq: 2 });
const text = maybe(fc.constantFrom(...modelTexts));
const small = fc.integer({ min: 0, max: 9 });
const key = fc.integer({ min: 0, max: 3 });
const second = fc.boolean();
const order = fc.record({ field: small, descending: fc.boolean() });
const page = {
  order: fc.array(order, { minLength: 1, maxLength: 3 }),
  limit: small,
  page: small,
  id: maybe(small),
};
const erasable = fc.constantFrom("chat", "userRef", "idle");
const tag = <Tag extends ModelCommand["_tag"]>(tag: Tag) => fc.constant(tag);

const command: fc.Arbitrary<ModelCommand> = fc.oneof(
  fc.record({ _tag: tag("Create"), second, name: text, userRef: text, hello: text }),
  fc.record({ _tag: tag("CreateWithKey"), second, name: text, key }),
  fc.record({
    _tag: tag("Ask"),
    second,
    chat: maybe(small),
    key: maybe(key),
    question: text,
    way: small,
  }),
  fc.record({ _tag: tag("Take"), second, chat: maybe(small), key: maybe(key) }),
  fc.record({ _tag: tag("Append"), second, turn: small, question: text }),
  fc.record({ _tag: tag("Renew"), second, turn: small }),
  fc.record({ _tag: tag("Release"), second, turn: small }),
  fc.record({ _tag: tag("Earlier"), second, turn: small, entry: small }),
  fc.record({ _tag: tag("List"), second, ...page, search: text, userRef: text }),
  fc.record({ _tag: tag("History"), second, ...page, chat: small }),
  fc.record({ _tag: tag("Erase"), second, which: erasable, chat: small, compact: small }),
  fc.record({ _tag: tag("Usage"), second, chat: small }),
  fc.record({ _tag: tag("Export"), second, to: small }),
  fc.record({ _tag: tag("Switch"), chatbot: small }),
  fc.record({ _tag: tag("Pass"), long: small }),
);

/** What fast-check finds: `fc.defaultReportMessage` tells the commands that it shrank to, why, and the seed. */
export const drawn = Effect.fnUntraced(function* (
  parameters: fc.Parameters<[ReadonlyArray<ModelCommand>]> = {},
) {
  const run = Effect.runPromiseWith(yield* Effect.context<ModelServices>());
  const follows = fc.asyncProperty(fc.array(command, { maxLength: 60, size: "max" }), (commands) =>
    run(followsModel(commands)),
  );
  return yield* Effect.promise(() => fc.check(follows, parameters));
});
