/**
 * The random commands: plain values that can be printed as code. Their numbers name keys, and select among the rows,
 * turns and chatbots that a run knows, newest first.
 */
import fc from "fast-check";
import { chatFields, entryFields, type ListQuery } from "../../model/ListQuery.ts";
import type { Erasable, UsageGroup } from "../../ports/ChatArchive.ts";

const one = <const A>(...values: ReadonlyArray<A>) => fc.constantFrom(...values);
const maybe = <A>(value: fc.Arbitrary<A>) => fc.option(value, { freq: 2 });

/** Strings that stores confuse when they compare, fold, escape or sort; the last ones lie around U+FFFF. */
const text = one(
  ...["", "a", "A", "a ", "ab", "Äb", "äB", "é", "e\u0301", "%", "_", "\\", "'", "ß", "SS", "ﬁ"],
  ...["İ", "i", "Σς", "\ue000", "\uffee", "😀", "𐐀", "𐐨"],
);
const user = one("u", "U", "u ", "%", "v\nu", "😀", "");
/** The indices 9 to 11 select another chatbot's row, the id 0, and the highest id, which no row has. */
const row = one(0, 0, 0, 1, 1, 2, 3, 5, 7, 9, 10, 11);
const turn = one(0, 0, 0, 1, 1, 2, 3, 4);
const key = fc.nat(3);
const tokens = one(0, 5, 1_000);
/** An idempotency key, and which of two requests sends it. */
const idempotencyKey = maybe(fc.record({ name: key, request: one(0, 0, 0, 1) }));
const cost = maybe(fc.record({ key, tokens }));
const date = maybe(one("1990-01-01T00:00:00.000Z", "2201-01-01T00:00:00.001Z"));

/** Spans of time, in milliseconds: around a lease, a reservation, a key's lifetime and a day. */
const spans = [
  ...[1, 999, 2_000, 3_500, 9_999, 10_000, 11_000],
  ...[46_800_000, 86_399_999, 86_400_000, 90_000_000],
];
const span = one(...spans);

const order = <Field extends string>(fields: ReadonlyArray<Field>) =>
  fc
    .shuffledSubarray([...fields], { minLength: 1, maxLength: 3 })
    .chain((some) =>
      fc.tuple(
        ...some.map((field) => fc.record({ field: fc.constant(field), descending: fc.boolean() })),
      ),
    ) as unknown as fc.Arbitrary<ListQuery<Field>["orderBy"]>;

const page = { limit: fc.integer({ min: 1, max: 7 }), page: one(1, 1, 2, 3, 9) };

const answer = {
  question: text,
  answer: text,
  flagged: one(false, false, true),
  moderation: one("none", "none", "hate"),
  usage: maybe(
    fc.record({ provider: one("p", "q"), model: one("m", "n"), tokens, attempts: one(0, 2) }),
  ),
};
const asked = { ...answer, cost };
/** Few chats, so that asks meet in them. */
const take = {
  chat: one(0, 0, 0, 0, 0, 1, 1, 2, 3, 9, 10, null, null, null),
  key: idempotencyKey,
  visitor: fc.option(user, { freq: 1 }),
};

const keyFields = {
  name: maybe(text),
  expiresAt: date,
  scopes: one(["read"], ["ask", "write"]),
  ratePerMinute: maybe(one(1, 60)),
  signingSecret: maybe(one("a".repeat(64), "b".repeat(64))),
  visitorRatePerMinute: maybe(one(1, 60)),
  tokensPerDay: maybe(one(1, 1e12)),
  origins: fc.subarray(["https://a.example", "https://b.example"]),
  anonymous: fc.boolean(),
};
const settings = {
  helloMessage: maybe(text),
  instructions: maybe(text),
  moderationErrorMessage: one("No", "no"),
  model: maybe(one("m", "n")),
  moderation: maybe(one("off", "words")),
  knowledge: maybe(one("a", "b")),
  retentionDays: maybe(one(1, 36_500)),
};
const chatbotFields = {
  workspace: one("a", "b", "A"),
  name: one("a", "b", "A", "😀"),
  description: text,
};
const optional = { requiredKeys: [] };

/** A command that one of two instances runs. */
const on = <Tag extends string, Fields extends object>(
  tag: Tag,
  fields: { readonly [Name in keyof Fields]: fc.Arbitrary<Fields[Name]> },
  weight = 1,
  by: fc.Arbitrary<"first" | "second" | "both"> = one("first", "second"),
) => ({
  weight,
  arbitrary: fc.record({ _tag: fc.constant(tag), ...fields, by }) as fc.Arbitrary<
    { readonly _tag: Tag; readonly by: "first" | "second" | "both" } & Fields
  >,
});
/** Who runs a command whose outcome does not depend on which of two concurrent calls is first. */
const each = one("first", "second", "first", "second", "both");

/** The commands. After a failure, fast-check looks for fewer commands, and for ones that come first in this list. */
export const command = fc.oneof(
  on(
    "Create",
    {
      name: maybe(text),
      userRef: maybe(user),
      hello: maybe(text),
      key: idempotencyKey,
      isVisitor: fc.boolean(),
    },
    6,
    each,
  ),
  on("Ask", { ...take, ...asked }, 10),
  on("Take", take, 12),
  on("Append", { turn, ...asked }, 5, each),
  on("Renew", { turn }, 3, each),
  on("Release", { turn, cost }, 4, each),
  on("Earlier", { turn, entry: row }, 2),
  // An instance that ends while its turn, or its place in a queue, is open.
  on("TakeAndDie", take),
  // The other instance asks the same while the turn is open.
  on("AskTogether", { ...take, ...asked }, 2),
  on(
    "List",
    {
      ...page,
      orderBy: order(chatFields),
      id: fc.option(row, { freq: 1 }),
      search: maybe(text),
      userRef: maybe(user),
    },
    4,
  ),
  on(
    "History",
    { ...page, orderBy: order(entryFields), chat: row, id: maybe(row), visitor: maybe(user) },
    3,
  ),
  on(
    "Erase",
    {
      which: one<Erasable["_tag"]>("Chat", "Chat", "UserRef", "IdleSince", "IdleFor", "All"),
      chat: row,
      userRef: user,
      ago: one(-1, 0, ...spans, 60 * 365 * 86_400_000),
    },
    2,
  ),
  on("Export", { userRef: maybe(user), digest: one("", "d1") }),
  on("Copy", { to: turn }),
  on(
    "Import",
    {
      chats: fc.array(
        fc.record({
          name: maybe(text),
          userRef: maybe(user),
          year: one(1960, 1965, 1970),
          entries: fc.array(fc.record({ year: one(1960, 1965, 1970), ...answer }), {
            maxLength: 2,
          }),
        }),
        { maxLength: 4 },
      ),
      flaw: one(null, null, "times", "ids", "broken"),
    },
    2,
  ),
  on("Usage", {
    group: maybe(one<UsageGroup>("day", "key", "userRef")),
    ago: one(0, ...spans, 60 * 365 * 86_400_000),
  }),
  on("Spending", { key }),
  on("Pass", { millis: span }, 8),
  on("StepBack", { millis: one(1, 3_500, 11_000) }),
  on("Switch", { chatbot: fc.nat(3) }, 2),
  on(
    "Register",
    {
      ...chatbotFields,
      settings: fc.record(settings, optional),
      keys: fc.array(key, { maxLength: 3 }),
    },
    2,
    each,
  ),
  on(
    "Change",
    { change: fc.record(chatbotFields, optional), settings: fc.record(settings, optional) },
    2,
    each,
  ),
  on("Delete", {}, 1, each),
  on("AddKey", { key, fields: fc.record(keyFields, optional) }, 2, each),
  on("ChangeKey", { key, change: fc.record(keyFields, optional) }, 2, each),
  on("RevokeKey", { key }, 1, each),
  on("UseKeys", { keys: fc.array(key, { maxLength: 2 }) }, 1, each),
  on("FindKey", { key }),
  on("ListChatbots", {}),
  on("Audit", { limit: one(0, 1, 3, 500) }),
  on("RecordRead", { detail: one("chat 17", "export") }),
);

/** A command that {@link replay} runs. */
export type Command = typeof command extends fc.Arbitrary<infer A> ? A : never;

/** Prints commands as an array literal, one command a line. */
export const show = (commands: ReadonlyArray<Command>): string =>
  `[\n${commands
    .map((command) => `  ${JSON.stringify(command).replaceAll(/"(\w+)":/g, " $1: ")},\n`)
    .join("")}]`;
