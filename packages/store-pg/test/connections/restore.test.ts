import { assert, it } from "@effect/vitest";
import { defaultChatQuery, defaultEntryQuery } from "@parley/core";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  TurnStore,
} from "@parley/core/ports";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres, migratePostgres } from "@parley/store-pg";
import { Cause, Effect, Exit, Stream } from "effect";
import { toStorageUnavailable } from "../../src/connections/PgErrors.ts";
import { makePools } from "../../src/connections/PgPools.ts";
import { bare, entry, keyOf, takeFree } from "../fixtures.ts";
import { freshDatabase } from "../PostgresUnderTest.ts";

it.live(
  "while a restore has dropped the schema, a table, a function or a constraint, every operation fails as unavailable, and afterwards the same connections work",
  () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      yield* Effect.gen(function* () {
        const chatbot = yield* registerChatbot;
        const [chats, turns] = [yield* ChatStore, yield* TurnStore];
        const [archive, registry] = [yield* ChatArchive, yield* ChatbotRegistry];
        const { chat } = yield* chats.createChat(chatbot, bare, null);
        const turn = yield* takeFree(chatbot, chat.id);
        const operations: Readonly<Record<string, Effect.Effect<unknown, unknown>>> = {
          find: ChatbotDirectory.use(({ find }) => find("0123456789ab")).pipe(
            Effect.provideService(ChatbotDirectory, yield* ChatbotDirectory),
          ),
          list: chats.listChats(chatbot, defaultChatQuery),
          search: chats.listChats(chatbot, { ...defaultChatQuery, search: "q" }),
          history: chats.listEntries(chatbot, chat.id, defaultEntryQuery),
          create: chats.createChat(chatbot, bare, null),
          take: turns.take(chatbot, chat.id, null),
          renew: turns.renew(turn),
          spending: turns.spending(chatbot, "a"),
          sizes: archive.sizes,
          export: Stream.runDrain(archive.export(chatbot, "operator")),
          erase: archive.erase(chatbot, { _tag: "IdleFor", millis: 1e12 }, "operator"),
          chatbots: registry.list,
        };
        const fail = (names: ReadonlyArray<string>, when: string) =>
          Effect.forEach(names, (name) =>
            Effect.gen(function* () {
              const error = yield* Effect.flip(operations[name]!);
              assert.deepInclude(
                error as object,
                { _tag: "StorageUnavailable" },
                `${name} ${when}`,
              );
            }),
          );
        const all = Object.keys(operations);
        yield* Effect.forEach(all, (name) => operations[name]!);
        yield* sql.unsafe("alter schema parley rename to away");
        yield* fail(all, "without the schema");
        // A restore creates everything anew, so that the plans of open connections are about tables that are gone.
        yield* migratePostgres({ url });
        yield* sql.unsafe("drop schema parley cascade");
        yield* sql.unsafe("alter schema away rename to parley");
        yield* sql.unsafe("alter table parley.chat rename to away");
        yield* fail(["list", "create", "take", "renew", "erase"], "without a table");
        yield* sql.unsafe("alter table parley.away rename to chat");
        yield* sql.unsafe("alter function parley.is_same_database rename to away");
        yield* fail(["create"], "without a function");
        yield* sql.unsafe("alter function parley.away rename to is_same_database");
        yield* sql.unsafe(
          "alter table parley.idempotency_key drop constraint idempotency_key_pkey",
        );
        const withKey = chats.createChat(chatbot, bare, keyOf("k"));
        assert.deepInclude(yield* Effect.flip(withKey), { _tag: "StorageUnavailable" });
        yield* sql.unsafe("alter table parley.idempotency_key add primary key (chatbot_id, key)");
        yield* Effect.forEach([...Object.values(operations), withKey], (work) => work);
        yield* turns.append(turn, entry);
      }).pipe(Effect.provide(layerPostgres({ url })));
    }).pipe(Effect.scoped),
);

it.live(
  "what a restore, a pooler or a failover causes for a moment is unavailable storage; a mistake in a statement, or damage, is a defect",
  () =>
    Effect.gen(function* () {
      const { sql, url } = yield* freshDatabase();
      const { writes } = yield* makePools({ url, schema: "parley", maxConnections: 5 });
      const query = (text: string) => writes.query("operator", text);
      const inTransaction = (...texts: ReadonlyArray<string>) =>
        writes.transaction("operator", Effect.forEach(texts, query));
      const raise = (code: string) => query(`do $$ begin raise sqlstate '${code}'; end $$`);
      yield* sql.unsafe("create schema parley");
      yield* sql.unsafe("create table parley.renewed (a int)");
      const read = "select * from renewed";
      yield* query(read);
      yield* sql.unsafe("alter table parley.renewed add b int");
      // Only outside a transaction does the driver prepare a statement again.
      const momentary = [
        ["0A000", inTransaction(read)],
        ["26000", inTransaction("select 1", "deallocate all", "select 1")],
        ["42704", query("select 'missing'::regtype")],
        ["XX000", raise("XX000")],
      ] as const;
      const mistakes = [
        ["42703", query("select missing")],
        ["22P02", query("select 'one'::int")],
        // A page or an index is damaged: no retry helps.
        ["XX001", raise("XX001")],
        ["XX002", raise("XX002")],
      ] as const;
      for (const [code, work] of momentary) {
        const { _tag, cause } = yield* Effect.flip(toStorageUnavailable(work));
        assert.deepNestedInclude(
          { _tag, cause },
          { _tag: "StorageUnavailable", "cause.reason.cause.code": code },
        );
        yield* Effect.forEach([read, "select 1"], query);
        // The statement COMMIT may have been lost, too.
        yield* Effect.retry(inTransaction("select 1", read), { times: 1 });
      }
      for (const [code, work] of mistakes) {
        const exit = yield* Effect.exit(toStorageUnavailable(work));
        assert.isTrue(Exit.isFailure(exit) && Cause.hasDies(exit.cause), code);
      }
    }).pipe(Effect.scoped),
);
