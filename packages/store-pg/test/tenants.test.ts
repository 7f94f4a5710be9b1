/**
 * The condition on the chatbot, in each statement, is the only barrier between tenants. In these tests, two chatbots
 * have chats, entries and keys with the same ids, so that a statement without its condition meets the other's rows.
 */
import { assert, it } from "@effect/vitest";
import { defaultChatQuery, defaultEntryQuery } from "@parley/core";
import {
  ChatArchive,
  ChatId,
  ChatbotRegistry,
  ChatStore,
  storeOf,
  TurnStore,
  type ChatbotId,
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
 * Statements that show and change the same without the condition: one only locks rows, one skips some ids, and one finds
 * the row of a turn, whose id is unique.
 */
const harmless =
  /^select chats, positions .* for update$|^\nselect setval\(sequence|^select from idempotency_key .* turn = \$3 /;
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

const rowsOf = (sql: SqlClient.SqlClient, chatbot: number, prefix = "") =>
  Effect.map(
    Effect.forEach(tables, (table) =>
      sql.unsafe(
        `select to_jsonb(t) as row from ${prefix}${table} t where chatbot_id = $1 order by 1`,
        [chatbot],
      ),
    ),
    (rows) => rows.flat(),
  );

/** Calls every operation on our chatbot, and returns what it shows and changes, of both chatbots. */
const observe = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  pools: PgPools,
  ids: Readonly<Record<"ours" | "theirs" | "empty", ChatbotId>> &
    Effect.Success<ReturnType<typeof fill>>,
) {
  const { chatId, empty, entryId, ours, theirs } = ids;
  for (const table of tables) {
    yield* sql.unsafe(`delete from ${table}`);
    yield* sql.unsafe(`insert into ${table} select * from saved_${table}`);
  }
  const { createChat, listChats, listEntries, turns } = yield* makeStore(pools);
  const ports = storeOf(makeRows(pools), {} as never);
  const [archive, registry] = [
    Context.get(ports, ChatArchive),
    Context.get(ports, ChatbotRegistry),
  ];
  const output: Array<string> = [];
  const see = Effect.fnUntraced(function* <A, E>(call: Effect.Effect<A, E>) {
    const exit = yield* Effect.exit(call);
    const failure = Exit.isFailure(exit) ? (Cause.squash(exit.cause) as { _tag?: string }) : null;
    output.push(
      failure === null
        ? serialize((exit as Exit.Success<A>).value ?? null)
        : (failure._tag ?? "defect"),
    );
  });
  const records = yield* Stream.runCollect(archive.export(ours, "test")).pipe(
    Effect.orElseSucceed(() => []),
  );
  for (const query of [
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
  ] as const)
    yield* see(listChats(ours, { ...defaultChatQuery, ...query }));
  for (const query of [
    {},
    { id: entryId },
    { orderBy: [{ field: "answer", descending: false }] },
  ] as const)
    for (const visitor of [null, "u"])
      yield* see(listEntries(ours, chatId, { ...defaultEntryQuery, ...query }, visitor));
  for (const person of [undefined, { userRef: "u" }])
    yield* see(Stream.runCollect(archive.export(ours, "test", person as never)));
  for (const by of [null, "day", "key", "userRef"] as const)
    yield* see(archive.usage(ours, { since: new Date(0), by }));
  yield* see(turns.spending(ours, "k"));

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
  for (const turn of [inChat, inNewChat, inTheirChat]) {
    yield* see(turns.renew(turn));
    yield* see(turns.append(turn, entry));
    yield* see(turns.release(turn));
  }
  yield* see(turns.earlier(inChat, Number.MAX_SAFE_INTEGER));
  for (const key of ["claimed", "answered", "asked 2"]) yield* see(turns.stop(ours, key, null));
  yield* see(turns.take(ours, chatId, null));
  yield* see(turns.take(ours, null, keyOf("answered")));
  for (const key of ["created 2", "new"]) yield* see(createChat(ours, chat, keyOf(key)));
  // The sweep runs in the background.
  const sweptKey = sql.unsafe("select from idempotency_key where chatbot_id = $1 and key = 'old'", [
    ours,
  ]);
  yield* Effect.repeat(sweptKey, { until: (rows) => rows.length === 0 }).pipe(
    Effect.timeout("5 seconds"),
    Effect.ignore,
  );
  yield* see(registry.revokeKey(ours, "theirs", "test"));
  const rowsBeforeErasure = yield* rowsOf(sql, ours);
  yield* see(archive.import(empty, Stream.fromIterable(records), "test"));
  for (const which of [
    { _tag: "Chat", id: chatId },
    { _tag: "UserRef", userRef: "u" },
    { _tag: "IdleSince", limit: new Date(0) },
    { _tag: "All" },
  ] as const) {
    yield* see(archive.erase(ours, which, "test"));
  }
  const ourRows = [rowsBeforeErasure, yield* rowsOf(sql, ours)].map((rows) =>
    rows.map(serialize).sort(),
  );
  return { output, ourRows, theirRows: yield* rowsOf(sql, theirs) };
}, Effect.scoped);

it.live(
  "no statement does without its condition on the chatbot",
  () =>
    inSchema(
      Effect.fnUntraced(function* (sql, schema) {
        const theirs = yield* registerChatbot;
        const [ours, empty] = [yield* registerChatbot, yield* registerChatbot];
        const ids = { ours, theirs, empty, ...(yield* fill(sql, ours, theirs)) };
        const pools = yield* makePools({ ...optionsOf(schema), maxConnections: 7 });
        const statements = new Set<string>();
        const collect = (text: string) => {
          if (withoutCondition(text) !== text && !harmless.test(text)) statements.add(text);
          return text;
        };
        const intact = yield* observe(sql, changeStatements(pools, collect), ids);
        assert.deepStrictEqual(yield* observe(sql, pools, ids), intact);
        assert.notMatch(intact.output.join(), /theirs|Alphabet/);
        assert.deepStrictEqual(intact.theirRows, yield* rowsOf(sql, theirs, "saved_"));
        assert.isAbove(statements.size, 30);
        const unnoticed: Array<string> = [];
        for (const statement of statements) {
          const isNoticed = (change: (text: string) => string) => {
            const cut = (text: string) => (text === statement ? change(text) : text);
            const observations = observe(sql, changeStatements(pools, cut), ids);
            return Effect.map(
              observations,
              (all) => JSON.stringify(all) !== JSON.stringify(intact),
            );
          };
          if (!(yield* isNoticed(withoutCondition)) && !(yield* isNoticed(withOpposite)))
            unnoticed.push(statement);
        }
        assert.deepStrictEqual(unnoticed, []);
      }),
    ),
  180_000,
);
