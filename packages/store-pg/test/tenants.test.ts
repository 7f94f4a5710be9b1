/**
 * The condition on the chatbot, in each statement, is the only barrier between tenants. In these tests, two chatbots
 * have chats, entries and keys with the same ids, so that a statement without its condition meets the other's rows.
 */
import { assert } from "@effect/vitest";
import { defaultChatQuery, defaultEntryQuery } from "@parley/core";
import {
  ChatArchive,
  ChatId,
  ChatbotRegistry,
  ChatStore,
  storeOf,
  TurnStore,
  type ChatbotId,
  type ArchiveRecord,
  type Turn,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Cause, Context, Effect, Exit, Stream } from "effect";
import type { SqlClient } from "effect/sql";
import { makePools, type PgPools } from "../src/connections/PgPools.ts";
import type { DedicatedSession, Session } from "../src/connections/Session.ts";
import { makeRows } from "../src/PgRows.ts";
import { inSchema, keyOf, makeStore, takeFree } from "./fixtures.ts";
import { optionsOf } from "./PostgresUnderTest.ts";

const tables = [
  "chat",
  "entry",
  "chat_counter",
  "position_gap",
  "idempotency_key",
  "key_spending",
  "erased_usage",
  "api_key",
];
const usage = {
  provider: "p",
  model: "m",
  promptTokens: 1,
  completionTokens: 1,
  attempts: 1,
  latencyMillis: 1,
};
const texts = { question: "q", answer: "ours", moderation: "none", flagged: false };
const entry = { ...texts, usage, apiKeyId: "k", spentTokens: 1 };
const chat = { name: "Alpha", userRef: "u", helloMessage: "Hello" };

/** How the other chatbot's rows differ from ours. */
const differences: Readonly<Record<string, object>> = {
  chat: {
    name: "Alphabet",
    folded_name: "alphabet",
    user_ref: "u",
    turn: "t",
    turn_until: "2100-01-01",
    entries: 9,
  },
  entry: { answer: "theirs" },
  chat_counter: { positions: 1 },
  idempotency_key: { fingerprint: "theirs" },
};

/** Fills our chatbot, copies its rows into the other one, and saves all rows. Returns the ids of an answer. */
const fill = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  ours: ChatbotId,
  theirs: ChatbotId,
) {
  const [{ createChat }, { append }] = [yield* ChatStore, yield* TurnStore];
  for (const n of [1, 2, 3, 4]) {
    const fields = { ...chat, userRef: n === 4 ? "v" : "u" };
    const created = yield* createChat(ours, fields, keyOf(`created ${n}`));
    yield* append(yield* takeFree(ours, created.chat.id, keyOf(`asked ${n}`)), entry);
    if (n > 1) continue;
    const which = { _tag: "Chat", id: created.chat.id } as const;
    yield* ChatArchive.use((archive) => archive.erase(ours, which, "test"));
  }
  for (const table of tables) {
    yield* sql.unsafe(
      `insert into ${table} select (jsonb_populate_record(null::${table}, to_jsonb(t) || $3::text::jsonb || jsonb_build_object('chatbot_id', $2::int4))).*
      from ${table} t where chatbot_id = $1`,
      [ours, theirs, JSON.stringify(differences[table] ?? {})],
    );
  }
  yield* sql.unsafe(
    `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id, entry_id)
    select $1, 'claimed', 'f', now(), 't', '2100-01-01'::timestamptz, null::int8, null::int8
    union all select $1, 'visitor' || chr(10) || 'u', 'f', now(), 't', '2100-01-01', null, null
    union all (select $1, 'answered', 'f', now(), 't', null, chat_id, id from entry where chatbot_id = $1 limit 1)
    union all select id, 'old', 'f', '-infinity', 't', null, null, null from chatbot`,
    [theirs],
  );
  yield* sql.unsafe(
    `insert into chat (chatbot_id, id, position, create_time, entries, turn, turn_until)
    values ($1, 999, 999, now(), 0, 't', '2100-01-01')`,
    [theirs],
  );
  yield* sql.unsafe(
    "insert into api_key (id, chatbot_id, hash, scopes, bounds) values ('theirs', $1, '', '{}', '{}')",
    [theirs],
  );
  for (const table of tables)
    yield* sql.unsafe(`create table saved_${table} as select * from ${table} order by chatbot_id`);
  const [answer] = yield* sql.unsafe<{ readonly chatId: ChatId; readonly entryId: number }>(
    `select chat_id::float8 as "chatId", id::float8 as "entryId" from entry where chatbot_id = $1 and answer = 'ours' limit 1`,
    [ours],
  );
  return answer!;
});

/**
 * Statements that show and change the same without the condition: some only lock rows, and one finds the row of a turn,
 * whose id is unique.
 */
const harmless =
  /^select chats, positions .* for update$|^select count\(\*\) from \([^]* for update\s+\) rows\s+\) locked$|^select from idempotency_key .* turn = \$3 /;
const condition = /\b(\w+\.)?chatbot_id = (\$1|\w+\.chatbot_id)(?!\w)/g;
const withoutCondition = (text: string) => text.replace(condition, "$$1::int is not null");
/** A statement that takes the first row may find ours first, whether or not it has the condition. */
const withOpposite = (text: string) =>
  text.replace(condition, (text) => text.replace("chatbot_id =", "chatbot_id <>"));

/** Passes the text of every statement through `change`. */
const changeStatements = (pools: PgPools, change: (text: string) => string): PgPools => {
  const changed = (session: Session): Session => ({
    ...session,
    query: (tenant, text, values) => session.query(tenant, change(text), values),
  });
  const changedStream = (session: DedicatedSession): DedicatedSession => ({
    ...changed(session),
    stream: (text, values) => session.stream(change(text), values),
  });
  const { bulk, erasureSession, exportSession, reads, writes } = pools;
  return {
    ...pools,
    reads: changed(reads),
    writes: changed(writes),
    bulk: changed(bulk),
    erasureSession: Effect.map(erasureSession, changed),
    exportSession: Effect.map(exportSession, changedStream),
  };
};

/** Serializes a value without the fields that differ from run to run. */
const serialize = (value: unknown) =>
  JSON.stringify(value, (name, field) =>
    /(^id|Id|_id|[tT]ime|_at|_until|Millis|^turn|^day)$/.test(name) && field !== null ? "" : field,
  );

const restoration = `do $$ begin ${tables
  .map((table) => `delete from ${table}; insert into ${table} select * from saved_${table};`)
  .join(" ")} end $$`;

const rowsOf = (sql: SqlClient.SqlClient, chatbot: number, prefix = "") =>
  sql.unsafe(
    tables
      .map(
        (table) =>
          `(select to_jsonb(t) as row from ${prefix}${table} t where chatbot_id = $1 order by 1)`,
      )
      .join(" union all "),
    [chatbot],
  );

type Ids = Readonly<Record<"ours" | "theirs" | "empty", ChatbotId>> &
  Effect.Success<ReturnType<typeof fill>>;

const portsOf = Effect.fnUntraced(function* (pools: PgPools) {
  const ports = storeOf(makeRows(pools), {} as never);
  return {
    ...(yield* makeStore(pools)),
    archive: Context.get(ports, ChatArchive),
    registry: Context.get(ports, ChatbotRegistry),
  };
});

type Operation = (
  ports: Effect.Success<ReturnType<typeof portsOf>>,
) => Effect.Effect<unknown, unknown>;

/** Every operation of a store on our chatbot. `records` are those of an export. */
const operationsOf = (
  sql: SqlClient.SqlClient,
  { chatId, empty, entryId, ours }: Ids,
  records: ReadonlyArray<ArchiveRecord>,
): ReadonlyArray<Operation> => {
  // Turns that the other chatbot's rows hold.
  const inChat: Turn = {
    id: "t",
    chatbot: ours,
    chatId,
    idempotencyKey: null,
    chat: null,
    newest: [],
  };
  const inNewChat: Turn = { ...inChat, chatId: null, idempotencyKey: keyOf("claimed") };
  const inTheirChat: Turn = { ...inChat, chatId: ChatId.make(999) };
  // The sweep runs in the background.
  const sweep = sql
    .unsafe("select from idempotency_key where chatbot_id = $1 and key = 'old'", [ours])
    .pipe(
      Effect.repeat({ until: (rows) => rows.length === 0 }),
      Effect.timeout("3 seconds"),
      Effect.ignore,
    );
  const lists = [
    {},
    { page: 2, limit: 1 },
    { id: chatId },
    { userRef: "u" },
    { search: "alph" },
    { search: "l" },
    { orderBy: [{ field: "name", descending: false }] },
    { orderBy: [{ field: "id", descending: false }] },
    {
      orderBy: [
        { field: "createTime", descending: true },
        { field: "name", descending: true },
      ],
    },
  ] as const;
  const histories = [
    {},
    { id: entryId },
    { orderBy: [{ field: "answer", descending: false }] },
  ] as const;
  const erasures = [
    { _tag: "Chat", id: chatId },
    // Only the other chatbot has this chat.
    { _tag: "Chat", id: ChatId.make(999) },
    { _tag: "UserRef", userRef: "u" },
    { _tag: "IdleSince", limit: new Date(0) },
    { _tag: "All" },
  ] as const;
  return [
    ...lists.map(
      (query): Operation =>
        (ports) =>
          ports.listChats(ours, { ...defaultChatQuery, ...query }),
    ),
    ...histories.flatMap((query) =>
      [null, "u"].map(
        (visitor): Operation =>
          (ports) =>
            ports.listEntries(ours, chatId, { ...defaultEntryQuery, ...query }, visitor),
      ),
    ),
    ...[undefined, { userRef: "u" }].map(
      (person): Operation =>
        ({ archive }) =>
          Stream.runCollect(archive.export(ours, "test", person as never)),
    ),
    ...([null, "day", "key", "userRef"] as const).map(
      (by): Operation =>
        ({ archive }) =>
          archive.usage(ours, { since: new Date(0), by }),
    ),
    ({ turns }) => turns.spending(ours, "k"),
    ...[inChat, inNewChat, inTheirChat].flatMap((turn): ReadonlyArray<Operation> => [
      ({ turns }) => turns.renew(turn),
      ({ turns }) => turns.append(turn, entry),
      ({ turns }) => turns.release(turn),
    ]),
    ({ turns }) => turns.earlier(inChat, Number.MAX_SAFE_INTEGER),
    ...["claimed", "answered", "asked 2"].map(
      (key): Operation =>
        ({ turns }) =>
          turns.stop(ours, key, null),
    ),
    ({ turns }) => turns.take(ours, chatId, null),
    ({ turns }) => Effect.tap(turns.take(ours, null, keyOf("answered")), sweep),
    ...["created 2", "new"].map(
      (key): Operation =>
        ({ createChat }) =>
          Effect.tap(createChat(ours, chat, keyOf(key)), sweep),
    ),
    ({ registry }) => registry.revokeKey(ours, "theirs", "test"),
    ({ archive }) => archive.import(empty, Stream.fromIterable(records), "test"),
    ...erasures.map(
      (which): Operation =>
        ({ archive }) =>
          archive.erase(ours, which, "test"),
    ),
  ];
};

/** Restores the saved rows, runs the operation, and returns what it shows and changes, of both chatbots. */
const observe = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  pools: PgPools,
  { ours, theirs }: Ids,
  operation: Operation,
) {
  yield* sql.unsafe(restoration);
  const exit = yield* Effect.exit(operation(yield* portsOf(pools)));
  const output = Exit.isSuccess(exit)
    ? serialize(exit.value ?? null)
    : ((Cause.squash(exit.cause) as { _tag?: string })._tag ?? "defect");
  const ourRows = (yield* rowsOf(sql, ours)).map(serialize).sort();
  return { output, ourRows, theirRows: yield* rowsOf(sql, theirs) };
}, Effect.scoped);

inSchema(
  "no statement does without its condition on the chatbot",
  function* (sql, schema) {
    const theirs = yield* registerChatbot;
    const [ours, empty] = [yield* registerChatbot, yield* registerChatbot];
    const ids = { ours, theirs, empty, ...(yield* fill(sql, ours, theirs)) };
    const pools = yield* makePools({ ...optionsOf(schema), maxConnections: 7 });
    const { archive } = yield* portsOf(pools);
    const records = yield* Stream.runCollect(archive.export(ours, "test"));
    const theirRows = yield* rowsOf(sql, theirs, "saved_");
    /** For each statement, the operations that run it and what they do with the condition in place. */
    const uses = new Map<string, Array<readonly [Operation, intact: string]>>();
    for (const operation of operationsOf(sql, ids, records)) {
      const statements = new Set<string>();
      const collect = (text: string) => {
        if (withoutCondition(text) !== text && !harmless.test(text)) statements.add(text);
        return text;
      };
      const intact = yield* observe(sql, changeStatements(pools, collect), ids, operation);
      assert.deepStrictEqual(yield* observe(sql, pools, ids, operation), intact);
      assert.notMatch(intact.output, /theirs|Alphabet|defect|StorageUnavailable/);
      assert.deepStrictEqual(intact.theirRows, theirRows);
      for (const statement of statements)
        uses.set(statement, [...(uses.get(statement) ?? []), [operation, JSON.stringify(intact)]]);
    }
    assert.isAbove(uses.size, 30);
    const isNoticed = Effect.fnUntraced(function* (statement: string) {
      for (const change of [withoutCondition, withOpposite]) {
        const cut = (text: string) => (text === statement ? change(text) : text);
        const changedPools = changeStatements(pools, cut);
        for (const [operation, intact] of uses.get(statement)!)
          if (JSON.stringify(yield* observe(sql, changedPools, ids, operation)) !== intact)
            return true;
      }
      return false;
    });
    const unnoticed: Array<string> = [];
    for (const statement of uses.keys())
      if (!(yield* isNoticed(statement))) unnoticed.push(statement);
    assert.deepStrictEqual(unnoticed, []);
  },
  60_000,
);

inSchema(
  "an operation on another tenant's row has the outcome, and runs the statements, of one on a missing row",
  function* (_, schema) {
    const [ours, theirs] = [yield* registerChatbot, yield* registerChatbot];
    const statements: Array<string> = [];
    const { createChat, listChats, listEntries, turns } = yield* makeStore(
      changeStatements(
        yield* makePools({ ...optionsOf(schema), maxConnections: 7 }),
        (text) => (statements.push(text), text),
      ),
    );
    // Another chatbot's rows, and those of another visitor of the same chatbot.
    for (const [owner, visitor] of [
      [theirs, null],
      [ours, "we"],
    ] as const) {
      const ourChat = (yield* createChat(ours, { ...chat, userRef: "we" }, null)).chat.id;
      const foreign = { ...chat, name: "Zugspitze", userRef: "they" };
      const [creation, ask] = [`creation ${visitor}`, `ask ${visitor}`];
      const { id } = (yield* createChat(owner, foreign, keyOf(creation))).chat;
      const turn = yield* turns.take(owner, id, keyOf(ask));
      assert(turn._tag === "TurnTaken");
      const answer = yield* turns.append(turn.turn, entry);
      const operations = (
        chatId: ChatId,
        entryId: number,
        [created, asked, userRef, search]: ReadonlyArray<string>,
      ): ReadonlyArray<() => Effect.Effect<unknown, { readonly _tag: string }>> => [
        ...[{}, { id: entryId }, { orderBy: [{ field: "answer", descending: true }] as const }].map(
          (query) => () => listEntries(ours, chatId, { ...defaultEntryQuery, ...query }, visitor),
        ),
        () => listEntries(ours, ourChat, { ...defaultEntryQuery, id: entryId }, visitor),
        ...[
          { id: chatId },
          { search: search! },
          ...(visitor === null
            ? [{ userRef: userRef! }, { userRef: userRef!, search: search! }]
            : []),
        ].map(
          (query) => () => listChats(ours, { ...defaultChatQuery, userRef: visitor, ...query }),
        ),
        () => turns.take(ours, chatId, null, visitor),
        () => turns.take(ours, chatId, keyOf("elsewhere"), visitor),
        ...(visitor === null
          ? [
              () => createChat(ours, chat, keyOf(created!)),
              () => turns.take(ours, null, keyOf(asked!)),
            ]
          : []),
      ];
      const missing = [9007199254740990 as ChatId, 9007199254740989] as const;
      const others = operations(...missing, ["new", "newer", "nobody", "Watzmanns"]);
      const texts = [creation, ask, "they", foreign.name];
      for (const [n, operation] of operations(id, answer.id, texts).entries()) {
        const outcomes = [];
        for (const each of [operation, others[n]!]) {
          statements.length = 0;
          const outcome = serialize(
            yield* Effect.match(each(), {
              onFailure: ({ _tag }) => _tag,
              onSuccess: (value) => value,
            }),
          );
          outcomes.push([
            outcome,
            statements.filter((text) => !text.startsWith("delete from idempotency_key")),
          ]);
        }
        assert.deepStrictEqual(outcomes[0], outcomes[1]);
        assert.isNotEmpty(outcomes[0]![1], `operation ${n}`);
      }
    }
  },
);
