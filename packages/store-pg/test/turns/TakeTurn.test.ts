/**
 * The statement of a take against `decideTake`, and turns whose key a client has stopped.
 */
import { assert } from "@effect/vitest";
import {
  ChatbotId,
  ChatId,
  ChatStore,
  decideTake,
  TurnStore,
  type TakeDecision,
  type TakeState,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { Effect, Result } from "effect";
import type { SqlClient } from "effect/sql";
import { millisNow } from "../../src/connections/PgParams.ts";
import { bare, entry, inSchema, keyOf, takeFree } from "../fixtures.ts";

// TypeScript would rewrite a static import to a path that does not exist in `dist`.
const states = new URL("../../../core/test/store/takeStates.ts", import.meta.url).href;
const { takeStates }: typeof import("../../../core/test/store/takeStates.ts") = await import(
  states
);
const names = takeStates(0, 1).map(([name]) => name);
const noChatbot = ChatbotId.make(2_000_000_000);
const toTime = (millis: number | null) => (millis === null ? null : new Date(millis).toISOString());

/** Writes the state's rows of the chat and the key, and the entry to which the key may refer. */
const writeRows = Effect.fnUntraced(function* (
  sql: SqlClient.SqlClient,
  chatbot: number,
  { chat, key }: TakeState,
) {
  for (const table of ["chat", "entry", "idempotency_key"])
    yield* sql.unsafe(`delete from ${table}`);
  yield* sql.unsafe(
    `insert into entry (chatbot_id, chat_id, id, position, question, answer, moderation, flagged, create_time)
    values ($1, 1, 7, 1, '', '', '', false, now())`,
    [chatbot],
  );
  if (chat !== null)
    yield* sql.unsafe(
      `insert into chat (chatbot_id, id, position, entries, create_time, user_ref, turn, turn_until, waiting)
      values ($1, 1, 1, 1, now(), $2, $3, nullif($4::timestamptz, 'epoch'), $5::text[])`,
      [chatbot, chat.chat.userRef, chat.turn, toTime(chat.turnUntil), `{${chat.waiting.join()}}`],
    );
  if (key !== null)
    yield* sql.unsafe(
      `insert into idempotency_key (chatbot_id, key, fingerprint, made_at, turn, turn_until, chat_id, entry_id, stopped)
      values ($1, 'k', $2, $3::timestamptz, $4, $5::timestamptz, $6::int8, $7::int8, $8)`,
      [
        chatbot,
        key.fingerprint,
        toTime(key.madeAt),
        key.turn,
        toTime(key.turnUntil),
        key.chatId,
        key.entryId,
        key.isStopped,
      ],
    );
});

const decisions = {
  AlreadyAnswered: "answered",
  ChatbotNotFound: "no_chatbot",
  ChatNotFound: "no_chat",
  IdempotencyKeyReused: "key_reused",
  Stopped: "stopped",
  TurnTaken: "free",
} as const;

inSchema("the statement of a take decides as `decideTake` does", function* (sql) {
  const [turns, registeredChatbot] = [yield* TurnStore, yield* registerChatbot];
  const readNow = Effect.map(
    sql.unsafe<{ readonly now: number }>(`select ${millisNow} as now`),
    ([row]) => Math.floor(row!.now),
  );
  let instance = "this";
  /** The state with this name, in which the store's instance stands for `this`. */
  const stateOf = (name: string, now: number): TakeState => {
    const [, state] = takeStates(now, 5_000).find(([other]) => other === name)!;
    const { chat } = state;
    const waiting = chat?.waiting.map((other) => (other === "this" ? instance : other)) ?? [];
    return { ...state, instance, chat: chat && { ...chat, waiting } };
  };
  const take = ({ fingerprint, hasChatbot, hasChatId, visitor }: TakeState) =>
    turns.take(
      hasChatbot ? registeredChatbot : noChatbot,
      hasChatId ? ChatId.make(1) : null,
      fingerprint === null ? null : { key: "k", fingerprint },
      visitor,
    );
  const heldChat = stateOf("a held chat", yield* readNow);
  yield* writeRows(sql, registeredChatbot, heldChat);
  yield* take(heldChat);
  const [row] = yield* sql.unsafe<{ readonly waiting: [string] }>("select waiting from chat");
  [instance] = row!.waiting;

  const actual: Array<readonly [string, TakeDecision]> = [];
  const expected: typeof actual = [];
  for (const name of names) {
    const start = performance.now();
    const now = yield* readNow;
    const state = stateOf(name, now);
    const decision = decideTake(state);
    expected.push([name, decision]);
    yield* writeRows(sql, registeredChatbot, state);
    const result = Result.merge(yield* Effect.result(take(state)));
    assert.notInclude(["Overloaded", "StorageUnavailable"], result._tag, name);
    if (result._tag === "Held" && typeof decision === "object") {
      const passedMillis = decision.until - now - result.forMillis;
      assert.isAtLeast(passedMillis, -1, name);
      assert.isAtMost(passedMillis, performance.now() - start + 2, name);
      actual.push([name, { heldBy: result.by, until: decision.until }]);
    } else {
      actual.push([name, decisions[result._tag as keyof typeof decisions]]);
    }
    if (decision === "free" && state.fingerprint !== null && state.hasChatbot) {
      const again = yield* take(state);
      assert.deepInclude(again, { _tag: "Held", by: "key" }, name);
    }
  }
  assert.deepStrictEqual(actual, expected);
});

const stop = (sql: SqlClient.SqlClient) =>
  sql.unsafe("update idempotency_key set stopped = true, turn_until = null");

inSchema(
  "a creation does not get the chat of a key that was stopped, claimed or answered",
  function* (sql) {
    const [chats, turns, chatbot] = [yield* ChatStore, yield* TurnStore, yield* registerChatbot];
    const create = (key: string) =>
      Effect.map(
        Effect.result(chats.createChat(chatbot, { ...bare, helloMessage: "Hello" }, keyOf(key))),
        (result) => {
          const { _tag, replayed } = { _tag: "", replayed: null, ...Result.merge(result) };
          return _tag || replayed;
        },
      );
    yield* takeFree(chatbot, null, keyOf("stopped"));
    yield* stop(sql);
    yield* takeFree(chatbot, null, keyOf("claimed"));
    yield* turns.append(yield* takeFree(chatbot, null, keyOf("answered")), entry);
    for (const key of ["stopped", "claimed", "answered"])
      assert.strictEqual(yield* create(key), "IdempotencyKeyReused", key);
    assert.isFalse(yield* create("new"));
    assert.isTrue(yield* create("new"));
  },
);
