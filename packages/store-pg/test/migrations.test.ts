import { assert, describe, it } from "@effect/vitest";
import { ChatbotRegistry, ChatStore, newestChats } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres, pendingSql } from "@parley/store-pg";
import { Effect, Layer, Redacted } from "effect";
import { Migrator, SqlClient } from "effect/sql";
import { migrations } from "../src/Migrations.ts";
import { clientOf, freshSchema, optionsOf } from "./PostgresUnderTest.ts";

const createOne = (chatbot: number) =>
  ChatStore.use((store) =>
    store.createChat(chatbot, { name: "n", userRef: null, helloMessage: "Hello" }, null),
  );

describe("migrations", () => {
  it.live("five servers that start at once on an empty schema all serve it", () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      const servers = yield* Effect.forEach(
        Array.from({ length: 5 }),
        () => Layer.build(Layer.fresh(layerPostgres(optionsOf(schema)))),
        { concurrency: 5 },
      );
      const chatbot = yield* Effect.provideContext(registerChatbot, servers[0]!);
      for (const server of servers) yield* Effect.provideContext(createOne(chatbot), server);
      const { total } = yield* ChatStore.use((store) => store.listChats(chatbot, newestChats)).pipe(
        Effect.provideContext(servers[4]!),
      );
      assert.strictEqual(total, 5);
    }).pipe(Effect.scoped),
  );

  it.live("a role that may not create anything serves a schema that is up to date", () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      yield* Effect.provide(Effect.void, layerPostgres(optionsOf(schema)));
      const sql = yield* clientOf(schema);
      yield* sql.unsafe(`revoke create on schema ${schema} from current_user`);
      const refused = yield* Effect.exit(sql.unsafe("create table t (n int)"));
      assert.strictEqual(refused._tag, "Failure");
      yield* Effect.provide(
        Effect.flatMap(registerChatbot, createOne),
        layerPostgres(optionsOf(schema)),
      );
    }).pipe(Effect.scoped),
  );

  it.live("a schema's name may be any", () =>
    Effect.gen(function* () {
      const schema = `${freshSchema()} "Quoted", Ünïcode`;
      yield* Effect.provide(
        Effect.flatMap(registerChatbot, createOne),
        layerPostgres(optionsOf(schema)),
      );
    }),
  );

  it.live("what would be done can be seen beforehand, and changes nothing", () =>
    Effect.gen(function* () {
      const options = optionsOf(freshSchema());
      const before = yield* pendingSql(options);
      for (const name of Object.keys(migrations)) assert.include(before, `-- ${name}`);
      assert.strictEqual(yield* pendingSql(options), before);
      yield* Effect.provide(Effect.void, layerPostgres(options));
      assert.strictEqual(yield* pendingSql(options), "");
    }),
  );

  const names = Object.keys(migrations) as ReadonlyArray<keyof typeof migrations>;
  for (const [at, name] of names.slice(0, -1).entries()) {
    it.live(`a schema of ${name} with data in it is brought up to date`, () =>
      Effect.gen(function* () {
        const schema = freshSchema();
        const sql = yield* clientOf(schema);
        yield* sql.unsafe(`create schema ${schema}`);
        const steps = names.slice(0, at + 1).map((step) => [
          step,
          Effect.forEach(
            migrations[step]
              .replace(/^ *--.*$/gm, "")
              .split(";")
              .filter((part) => part.trim() !== ""),
            (part) => sql.unsafe(part),
          ),
        ]);
        yield* Migrator.make({})({
          loader: Migrator.fromRecord(Object.fromEntries(steps)),
          table: "parley_migration",
        }).pipe(Effect.provideService(SqlClient.SqlClient, sql));
        yield* sql.unsafe(
          `insert into chatbot (workspace_name, name, description, settings)
          values ('Old', 'Bot', 'kept', '{"helloMessage":null,"moderationErrorMessage":"","instructions":null}')`,
        );
        yield* Effect.gen(function* () {
          const registry = yield* ChatbotRegistry;
          const [kept] = yield* registry.list;
          assert.strictEqual(kept?.chatbot.description, "kept");
          yield* createOne(kept!.chatbot.id);
        }).pipe(Effect.provide(layerPostgres(optionsOf(schema))));
      }).pipe(Effect.scoped),
    );
  }

  for (const [what, statement] of [
    ["a newer schema", "insert into parley_migration (migration_id, name) values (99, 'later')"],
    ["names folded otherwise", "update fold set version = 99"],
  ] as const) {
    it.live(`${what} is not served`, () =>
      Effect.gen(function* () {
        const options = optionsOf(freshSchema());
        yield* Effect.provide(Effect.void, layerPostgres(options));
        const sql = yield* clientOf(options.schema!);
        yield* sql.unsafe(statement);
        const error = yield* Effect.flip(Effect.provide(Effect.void, layerPostgres(options)));
        assert.match(error.message, /^The database cannot be used: its .*99/);
      }).pipe(Effect.scoped),
    );
  }

  it.live("a database of another encoding is refused", () =>
    Effect.gen(function* () {
      const sql = yield* clientOf("public");
      const name = freshSchema();
      yield* sql.unsafe(
        `create database ${name} encoding 'SQL_ASCII' locale 'C' template template0`,
      );
      const { url } = optionsOf("parley");
      const other = new URL(Redacted.value(url));
      other.pathname = `/${name}`;
      const error = yield* Effect.flip(
        Effect.provide(Effect.void, layerPostgres({ url: Redacted.make(other.href) })),
      );
      assert.include(error.message, "SQL_ASCII");
      yield* sql.unsafe(`drop database ${name} with (force)`);
    }).pipe(Effect.scoped),
  );
});

describe("the schema can be distributed by chatbot", () => {
  it.live("every key of a table of chats holds the chatbot, and no id can pass 2^53", () =>
    Effect.gen(function* () {
      const schema = freshSchema();
      yield* Effect.provide(Effect.void, layerPostgres(optionsOf(schema)));
      const sql = yield* clientOf(schema);
      const keys = yield* sql.unsafe<{ readonly name: string; readonly has: boolean }>(
        `select c.relname as name, exists (
          select from pg_attribute a
          where a.attrelid = i.indrelid and a.attname = 'chatbot_id' and a.attnum = any (i.indkey)
        ) as has
        from pg_index i join pg_class c on c.oid = i.indexrelid join pg_class t on t.oid = i.indrelid
        where t.relnamespace = $1::regnamespace and i.indisunique
          and t.relname in ('chat', 'entry', 'request', 'tally', 'hole')`,
        [schema],
      );
      assert.isAtLeast(keys.length, 7);
      assert.deepStrictEqual(
        keys.filter(({ has }) => !has),
        [],
      );
      const references = yield* sql.unsafe(
        `select conname from pg_constraint c join pg_class t on t.oid = c.conrelid
        where c.connamespace = $1::regnamespace and contype = 'f' and t.relname <> 'api_key'
          and not exists (
            select from pg_attribute a
            where a.attrelid = c.conrelid and a.attname = 'chatbot_id' and a.attnum = any (c.conkey))`,
        [schema],
      );
      assert.deepStrictEqual(references, []);
      const sequences = yield* sql.unsafe<{ readonly max_value: bigint }>(
        "select max_value from pg_sequences where schemaname = $1 and sequencename in ('chat_id', 'entry_id')",
        [schema],
      );
      assert.strictEqual(sequences.length, 2);
      for (const { max_value } of sequences) {
        assert.isAtMost(Number(max_value), Number.MAX_SAFE_INTEGER);
      }
    }).pipe(Effect.scoped),
  );
});
