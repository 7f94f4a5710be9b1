/**
 * Rows and helpers that tests share.
 */
import { it } from "@effect/vitest";
import {
  ChatArchive,
  type ChatbotId,
  type ChatId,
  type IdempotencyKey,
  storeOf,
  type StorePorts,
  TurnStore,
} from "@parley/core/ports";
import { Context, Effect, type Scope } from "effect";
import type { PgPools } from "../src/connections/PgPools.ts";
import { makeRows } from "../src/PgRows.ts";
import { makeHotPorts } from "../src/PgStore.ts";
import { clientOf, freshSchema, layerStore, optionsOf } from "./PostgresUnderTest.ts";

export const bare = { name: null, userRef: null, helloMessage: null };
export const entry = {
  question: "q",
  answer: "a",
  moderation: "none",
  flagged: false,
  usage: null,
};

/** Makes an idempotency key. All keys have the same fingerprint. */
export const keyOf = (key: string): IdempotencyKey => ({ key, fingerprint: "f" });

/** Makes the parts of a store that use these pools. */
export const makeStore = (pools: PgPools) =>
  Effect.map(makeHotPorts(pools), ({ chats, turns }) => ({ ...chats, turns }));

/** Makes the archive of a store that uses these pools. */
export const archiveOf = (pools: PgPools): ChatArchive["Service"] =>
  Context.get(storeOf(makeRows(pools), {} as never), ChatArchive);

/** Takes a turn. Fails if the turn is not free. */
export const takeFree = Effect.fnUntraced(function* (
  chatbot: ChatbotId,
  chat: ChatId | null,
  idempotencyKey: IdempotencyKey | null = null,
) {
  const result = yield* TurnStore.use(({ take }) => take(chatbot, chat, idempotencyKey));
  return result._tag === "TurnTaken" ? result.turn : yield* Effect.die("the turn is not free");
});

/** A test on the store in a schema of its own, with a client for that schema. */
export const inSchema = (
  name: string,
  test: (
    sql: Effect.Success<ReturnType<typeof clientOf>>,
    schema: string,
  ) => Generator<Effect.Effect<any, any, StorePorts | Scope.Scope>, void, never>,
  timeout?: number,
) =>
  it.live(
    name,
    Effect.fnUntraced(function* () {
      const schema = freshSchema();
      const sql = yield* clientOf(schema);
      yield* Effect.provide(Effect.fnUntraced(test)(sql, schema), layerStore(optionsOf(schema)));
    }),
    timeout,
  );
