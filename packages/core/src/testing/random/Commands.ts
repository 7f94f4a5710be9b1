/**
 * The random commands: plain values that can be printed as code. Their numbers name keys, and select among the rows,
 * turns and chatbots that a run knows, newest first.
 */
import { Record } from "effect";
import fc from "fast-check";
import { keyLimits } from "../../model/ApiKey.ts";
import {
  chatFields,
  chatIncludes,
  entryFields,
  entryIncludes,
  type ListQuery,
} from "../../model/ListQuery.ts";
import type { Metadata } from "../../model/Entry.ts";
import type { Erasable, FeedbackKind, UsageGroup } from "../../ports/ChatArchive.ts";

const one = <const A>(...values: ReadonlyArray<A>) => fc.constantFrom(...values);
const among = <const A>(...lists: ReadonlyArray<ReadonlyArray<A>>) => one(...lists.flat());
const maybe = <A>(value: fc.Arbitrary<A>) => fc.option(value, { freq: 2 });
const seldom = <A>(value: fc.Arbitrary<A>) => fc.oneof(fc.constant(null), maybe(value));

/** Strings that stores confuse when they compare, fold, escape or sort; the last ones lie around U+FFFF. */
const text = among(
  ["", "a", "A", "a ", "ab", "Äb", "äB", "é", "e\u0301", "%", "_", "\\", "'", "ß", "SS", "ﬁ"],
  ["İ", "i", "Σς", "\ue000", "\uffee", "😀", "𐐀", "𐐨"],
);
const user = one("u", "u", "u", "U", "u ", "%", "v\nu", "😀", "");
/** The indices 9 to 11 select another chatbot's row, the id 0, and the highest id, which no row has. */
const row = one<number>(0, 0, 0, 1, 1, 2, 3, 5, 7, 9, 10, 11);
const turn = one<number>(0, 0, 0, 1, 1, 2, 3, 4);
const key = fc.nat(3);
const tokens = one(0, 5, 1_000);
/** An idempotency key, and which of two requests sends it. */
const idempotencyKey = maybe(fc.record({ name: one(0, 0, 1, 2), request: one(0, 0, 1) }));
const cost = maybe(fc.record({ key, tokens: one(0, 5, 1_000, null) }));
const date = maybe(one(new Date("1990-01-01"), new Date("2201-01-01T00:00:00.001Z")));

/** Spans of time, in milliseconds: around a lease, a reservation, a key's lifetime and a day, and 400 and 401 days. */
const span = among(
  [1, 999, 2_000, 3_500, 9_999, 10_000, 11_000],
  [46_800_000, 86_399_999, 86_400_000, 90_000_000],
  [34_560_000_000, 34_646_400_000],
);
/**
 * The time of a row that the run knows, or the end of a lease, newest first; or just after it, or when its day begins or
 * ends. `null` for a time before all others.
 */
const since = fc.option(
  fc.record({
    kind: one("row", "row", "lease"),
    row: one(0, 0, 1, 2, 3, 5, 8, 13),
    moment: one("itself", "itself", "after", "day", "next day"),
  }),
  { freq: 9 },
);

/** Orders by up to three fields, `createTime` last: then it sorts as ids do, even if the times are not the same. */
const order = <Field extends string>(fields: ReadonlyArray<Field>) =>
  fc.shuffledSubarray([...fields], { minLength: 1, maxLength: 3 }).chain((some) => {
    const rank = (field: Field) => ["lastEntryTime", "createTime"].indexOf(field);
    const inOrder = some.toSorted((a, b) => rank(a) - rank(b));
    return fc.tuple(
      ...inOrder.map((field) => fc.record({ field: one(field), descending: fc.boolean() })),
    );
  }) as unknown as fc.Arbitrary<ListQuery<Field>["orderBy"]>;

const page = { limit: fc.integer({ min: 1, max: 7 }), page: one<number>(1, 1, 2, 3, 9) };

const answer = {
  question: text,
  metadata: maybe(
    one<Metadata>(
      { b: 1.5, a: [true, null] },
      { sources: [{ title: "ä😀", found: false }] },
      { a: 1, found: false },
    ),
  ),
  answer: text,
  flagged: one(false, false, true),
  moderation: one("none", "none", "hate"),
  usage: maybe(
    fc.record({
      provider: one("p", "q"),
      model: one("m", "n"),
      promptTokens: tokens,
      completionTokens: tokens,
      attempts: one(0, 2),
      latencyMillis: one(7),
    }),
  ),
};
/** Times that stores change or confuse: far away, around clock changes, and so on. */
const time = among<string>(
  ["0001-01-01T00:00:00.000Z", "1582-10-10T12:00:00.000Z", "1899-12-31T23:59:59.999Z"],
  ["1965-01-01T00:00:00.000Z", "1969-12-31T23:59:59.999Z", "1970-01-01T00:00:00.001Z"],
  ["2000-02-29T12:00:00.500Z", "2023-10-29T00:30:00.000Z", "9999-12-31T23:59:59.999Z"],
).map((text) => new Date(text));
const entries = fc.array(fc.record({ time, ...answer }), { maxLength: 3 });
const costlyAnswer = { ...answer, cost };
const take = {
  /** Few chats, so that asks meet in them; or a new chat. */
  at: fc.oneof(
    fc.record({ chat: one(0, 0, 0, 0, 0, 1, 1, 2, 3, 9, 10), visitor: fc.constant(null) }),
    fc.record({ chat: one(0, 0, 1, 2, null), visitor: maybe(user) }),
    fc.record({ chat: fc.constant(null), visitor: maybe(user) }),
  ) as fc.Arbitrary<{ readonly chat: number | null; readonly visitor: string | null }>,
  key: idempotencyKey,
};

const optional = { requiredKeys: [] };
const keyFields = fc.record(
  {
    name: maybe(text),
    expiresAt: date,
    scopes: one(["read"], ["ask", "write"]),
    ...Record.map(keyLimits, ({ maximum }) => maybe(one(1, maximum))),
    signingSecret: maybe(one("a".repeat(64), "b".repeat(64))),
    origins: fc.subarray(["https://a.example", "https://b.example"]),
    anonymous: fc.boolean(),
  },
  optional,
);
const settings = fc.record(
  {
    helloMessage: maybe(text),
    instructions: maybe(text),
    moderationErrorMessage: one("No", "no"),
    model: maybe(one("m", "n")),
    moderation: maybe(one("off", "endpoint")),
    knowledge: maybe(one("a", "b")),
    sourceUrl: maybe(one("https://docs.example/{path}")),
    notFoundMessage: one("Nothing", "No"),
    suggestedQuestions: one([], ["a", "b"]),
    retentionDays: maybe(one(1, 36_500)),
  },
  optional,
);
const chatbotFields = fc.record(
  {
    workspaceName: one("a", "a", "A"),
    name: one<string>("a", "a", "A", "😀"),
    description: text,
    settings,
  },
  optional,
);

type By = "first" | "second" | "both";

const runBy =
  (...by: ReadonlyArray<By>) =>
  <Tag extends string, Fields extends object>(
    tag: Tag,
    weight: number,
    fields: { readonly [Name in keyof Fields]: fc.Arbitrary<Fields[Name]> },
  ) => ({
    weight,
    arbitrary: fc.record({ _tag: fc.constant(tag), ...fields, by: one(...by) }) as fc.Arbitrary<
      { readonly _tag: Tag; readonly by: By } & Fields
    >,
  });
/** A command that one of two instances runs. */
const on = runBy("first", "second");
/** A command that both may run at once, because it does not matter which is first. */
const onEach = runBy("first", "second", "first", "second", "both");

/** The commands. After a failure, fast-check looks for fewer commands, and for ones that come first in this list. */
export const command = fc.oneof(
  onEach("Create", 6, {
    chat: fc.record({ name: maybe(text), userRef: maybe(user), helloMessage: maybe(text) }),
    key: idempotencyKey,
    isVisitor: fc.boolean(),
  }),
  on("Ask", 14, { ...take, ...costlyAnswer }),
  on("Take", 9, take),
  onEach("Append", 9, { turn, ...costlyAnswer }),
  onEach("Renew", 4, { turn }),
  onEach("Release", 5, { turn, cost }),
  on("Earlier", 2, { turn, entry: row }),
  on("TakeAndDie", 1, take),
  on("AskTogether", 2, { ...take, ...costlyAnswer }),
  on("Stop", 4, { at: take.at, key: idempotencyKey, isWaiting: fc.boolean() }),
  on("List", 4, {
    query: fc.record({
      ...page,
      include: fc.subarray([...chatIncludes]),
      orderBy: order(chatFields),
      search: maybe(text),
      userRef: maybe(user),
    }),
    id: seldom(row),
  }),
  on("History", 3, {
    query: fc.record({
      ...page,
      include: fc.subarray([...entryIncludes]),
      orderBy: order(entryFields),
    }),
    chat: row,
    id: maybe(row),
    after: maybe(row),
    visitor: maybe(user),
  }),
  on("Rename", 2, { chat: row, name: maybe(text), visitor: maybe(user) }),
  on("Rate", 3, {
    chat: row,
    entry: row,
    feedback: fc.record({ rating: maybe(one("good", "bad")), comment: maybe(text) }, optional),
    visitor: maybe(user),
  }),
  on("DeleteChat", 2, { chat: row, visitor: maybe(user) }),
  on("Erase", 4, {
    which: one<Erasable["_tag"]>("Chat", "UserRef", "IdleSince", "IdleSince", "IdleFor", "All"),
    chat: row,
    userRef: user,
    since,
  }),
  on("Export", 1, {
    person: maybe(fc.record({ userRef: user, digest: one("d1") }, { requiredKeys: ["userRef"] })),
  }),
  on("Copy", 1, { to: turn }),
  on("Import", 3, {
    chats: fc.array(fc.record({ name: maybe(text), userRef: maybe(user), time, entries }), {
      maxLength: 4,
    }),
    flaw: one(null, null, null, "times", "ids", "ids", "broken"),
    isNew: one(true, true, false),
  }),
  on("Usage", 2, {
    group: maybe(one<UsageGroup>("day", "key", "userRef")),
    since,
    until: fc.option(since, { freq: 2 }),
  }),
  on("Feedback", 2, { kind: one<FeedbackKind>("rated", "unanswered"), since }),
  on("Spending", 1, { key }),
  on("Pass", 8, { millis: span }),
  on("StepBack", 3, { millis: one(1, 3_500, 11_000) }),
  on("Switch", 2, { chatbot: fc.nat(3) }),
  onEach("Register", 3, { chatbot: chatbotFields, keys: fc.array(key, { maxLength: 3 }) }),
  onEach("Change", 3, { change: chatbotFields }),
  onEach("Delete", 1, {}),
  onEach("AddKey", 2, { key, fields: keyFields }),
  onEach("ChangeKey", 2, { key, change: keyFields }),
  onEach("RevokeKey", 1, { key }),
  onEach("UseKeys", 1, { keys: fc.array(key, { maxLength: 2 }) }),
  on("FindKey", 1, { key }),
  on("ListChatbots", 1, {}),
  on("Audit", 1, { limit: one<number>(0, 1, 3, 500) }),
  on("RecordRead", 1, { detail: one("entries", "export") }),
);

/** A command that {@link replay} runs. */
export type Command = typeof command extends fc.Arbitrary<infer A> ? A : never;

const all = {
  limit: 100,
  page: 1,
  orderBy: [{ field: "id", descending: false }],
  include: [],
};
const filters = {
  search: null,
  userRef: null,
  id: null,
  after: null,
  visitor: null,
  person: null,
  since: null,
  until: null,
};

/** Commands that read everything about a chatbot through the ports, and then delete it. */
export const readAll = (chatbot: number): ReadonlyArray<Command> =>
  [
    { _tag: "Switch", chatbot },
    { _tag: "List", query: { ...filters, ...all, include: chatIncludes } },
    { _tag: "History", query: { ...all, include: entryIncludes }, chat: 0 },
    { _tag: "Usage", group: "key" },
    ...["rated", "unanswered"].map((kind) => ({ _tag: "Feedback", kind })),
    ...[0, 1, 2, 3].map((key) => ({ _tag: "Spending", key })),
    ...["Export", "ListChatbots", "Delete"].map((_tag) => ({ _tag })),
    { _tag: "Audit", limit: 500 },
  ].map((command) => ({ ...filters, ...command, by: "second" }) as unknown as Command);

/** Prints commands as an array literal, one command a line. */
export const show = (commands: ReadonlyArray<Command>): string => {
  const lines = commands.map((command) =>
    JSON.stringify(command)
      .replaceAll(/"(\w+)":/g, " $1: ")
      .replaceAll(/"\d{4}-\d\d-\d\dT.*?Z"/g, "new Date($&)"),
  );
  return `[\n${lines.map((line) => `  ${line},\n`).join("")}]`;
};
