import { assert, describe, it } from "@effect/vitest";
import { ChatArchive, ChatStore, newestChats, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Effect } from "effect";
import { bound, clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

describe.each([
  ["", optionsOf],
  [
    " of a server that row security binds",
    (schema: string) => ({ ...optionsOf(schema), ...bound() }),
  ],
] as const)("an erasure%s", (_, options) => {
  it.live("leaves nothing of the erased text in any table or index", () => {
    const schema = freshSchema();
    const secret = "Zugspitzpanorama";
    return Effect.gen(function* () {
      const sql = yield* clientOf(schema);
      const chatbot = yield* registerChatbot;
      const store = yield* ChatStore;
      const turns = yield* TurnStore;
      for (let n = 0; n < 20; n++) {
        const { chat } = yield* store.createChat(
          chatbot,
          { name: `${secret} ${n}`, userRef: secret, helloMessage: `${secret} ${n}` },
          { key: `${secret} ${n}`, fingerprint: "f" },
        );
        const taken = yield* turns.take(chatbot, chat.id, {
          key: `${secret} ask ${n}`,
          fingerprint: "f",
        });
        if (taken._tag !== "Turn") return assert.fail("the turn is free");
        yield* turns.append(taken.turn, {
          question: secret,
          answer: secret.repeat(1000),
          moderation: "none",
          flagged: false,
          usage: {
            provider: secret,
            model: secret,
            promptTokens: 1,
            completionTokens: 1,
            attempts: 1,
            latencyMillis: 1,
          },
        });
      }
      yield* store.listChats(chatbot, { ...newestChats, search: secret });
      assert.isAbove(yield* occurrences(sql, schema, secret), 0);
      const erased = yield* ChatArchive.use((archive) =>
        archive.erase(chatbot, { _tag: "UserRef", userRef: secret }),
      );
      assert.strictEqual(erased, 20);
      yield* ChatArchive.use((archive) => archive.compact);
      assert.strictEqual(yield* occurrences(sql, schema, secret), 0);
      const vacuumed = yield* sql.unsafe(
        `select from pg_stat_user_tables
        where schemaname = $1 and relname in ('chat', 'entry', 'request') and last_vacuum is not null`,
        [schema],
      );
      assert.strictEqual(vacuumed.length, 3);
    }).pipe(Effect.provide(layerPostgres(options(schema))), Effect.scoped);
  });
});

/** How many rows of all tables hold the text. */
const occurrences = Effect.fnUntraced(function* (
  sql: Effect.Success<ReturnType<typeof clientOf>>,
  schema: string,
  text: string,
) {
  const tables = yield* sql.unsafe<{ readonly tablename: string }>(
    "select tablename from pg_tables where schemaname = $1",
    [schema],
  );
  let found = 0;
  for (const { tablename } of tables) {
    const [row] = yield* sql.unsafe<{ readonly n: number }>(
      `select count(*)::int4 as n from ${tablename} t where t::text ilike $1`,
      [`%${text}%`],
    );
    found += row!.n;
  }
  return found;
});
