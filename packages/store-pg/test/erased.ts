/**
 * Stores with chats that can be erased, and what others in the database can do meanwhile.
 */
import type * as PgClient from "@effect/sql-pg/PgClient";
import { assert } from "@effect/vitest";
import { ChatArchive, ChatStore, TurnStore } from "@parley/core";
import { registerChatbot } from "@parley/core/testing";
import { layerPostgres } from "@parley/store-pg";
import { Deferred, Effect, Layer, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import type { SqlError } from "effect/sql";
import { inject } from "vitest";
import { makeClients, type Clients } from "../src/Clients.ts";
import type { Session } from "../src/Session.ts";
import { fillChats, filledChatbot, settle } from "./fill.ts";
import { bound, clientOf, freshDatabase, inDatabase } from "./PostgresUnderTest.ts";

export const secret = "Zugspitzpanorama";

/** A transaction that goes on after the first that it does. */
export const lasting = Effect.fnUntraced(function* (
  client: PgClient.PgClient,
  first: Effect.Effect<unknown, SqlError.SqlError>,
) {
  const begun = yield* Deferred.make<void>();
  const ended = yield* Deferred.make<void>();
  const whole = client.withTransaction(
    first.pipe(
      Effect.andThen(Deferred.succeed(begun, undefined)),
      Effect.andThen(Deferred.await(ended)),
    ),
  );
  return {
    begin: Effect.andThen(Effect.forkDetach(Effect.exit(whole)), Deferred.await(begun)),
    end: Deferred.succeed(ended, undefined),
  };
});

/** Does something before the first statement of the owner that contains so much. */
export const doing = (clients: Clients, part: string, effect: Effect.Effect<void>): Clients => {
  let isDone = false;
  const before = (text: string) =>
    Effect.suspend(() => {
      if (isDone || !text.includes(part)) return Effect.void;
      isDone = true;
      return effect;
    });
  return {
    ...clients,
    migrator: (settings) =>
      Effect.map(clients.migrator(settings), (session): Session => ({
        ...session,
        command: (text, values) => Effect.andThen(before(text), session.command(text, values)),
        query: <Row extends object>(
          ...[subject, text, values]: Parameters<Session["query"]>
        ): Effect.Effect<ReadonlyArray<Row>, SqlError.SqlError> =>
          Effect.andThen(before(text), session.query<Row>(subject, text, values)),
      })),
  };
};

/** A store whose few chats can be erased, with many names in its index, in a database of its own. */
export const fewErased = Effect.gen(function* () {
  const { name, sql, url } = yield* freshDatabase();
  const superuser = Redacted.make(inject("roleUrls").superuser);
  const inspector = yield* clientOf("parley", 1, inDatabase(name, superuser));
  yield* inspector.unsafe("create extension pageinspect with schema public");
  yield* sql.unsafe("create table public.elsewhere (n int)");
  const options = { schema: "parley", maxConnections: 1 };
  const server = { ...options, url: inDatabase(name, Redacted.make(inject("roleUrls").server)) };
  const services = yield* Layer.build(layerPostgres({ ...server, migrationUrl: url }));
  const [store, archive, turns] = yield* Effect.provideContext(
    Effect.all([ChatStore, ChatArchive, TurnStore]),
    services,
  );
  const chatbot = yield* Effect.provideContext(registerChatbot, services);
  yield* fillChats(sql, filledChatbot, 1_000);
  yield* Effect.forEach(
    Array.from({ length: 20 }),
    () => store.createChat(chatbot, { name: secret, userRef: "u", helloMessage: null }, null),
    { concurrency: 20 },
  );
  const clients = yield* Effect.provide(makeClients({ ...options, url }), Reactivity.layer);
  const left = Effect.map(
    inspector.unsafe<{ readonly n: number }>(
      `select count(*)::int4 as n
      from generate_series(0, (pg_relation_size('chat') / 8192 - 1)::int4) page,
        lateral public.heap_page_items(public.get_raw_page('chat', page)) item
      where position($1::bytea in t_data) > 0`,
      [Buffer.from(secret)],
    ),
    ([row]) => row!.n,
  );
  /** Files of the tables. */
  const filed = Effect.map(
    inspector.unsafe<{ readonly file: number }>(
      "select relfilenode::int4 as file from pg_class where oid = any ('{chat,entry,request}'::regclass[])",
    ),
    (rows) => rows.map(({ file }) => file),
  );
  return {
    another: clientOf("parley", 1, url),
    chatbot,
    clients,
    filed,
    inspector,
    store,
    turns,
    erase: archive.erase(chatbot, { _tag: "UserRef", userRef: "u" }),
    left,
    server,
    sql,
    url,
  };
});

/** Chats whose texts are to be erased, and some that are not, among many others in a database of their own. */
export const amongOthers = Effect.fnUntraced(function* (rowSecurity: boolean) {
  // VACUUM leaves what others in the same database may still read.
  const { name, sql, url } = yield* freshDatabase();
  const superuser = Redacted.make(inject("roleUrls").superuser);
  const inspector = yield* clientOf("parley", 1, inDatabase(name, superuser));
  yield* inspector.unsafe("create extension pageinspect with schema public");
  const options = {
    schema: "parley",
    ...(rowSecurity
      ? { rowSecurity, url: inDatabase(name, bound().url), migrationUrl: url }
      : { url }),
  };
  const services = yield* Layer.build(layerPostgres(options));
  const clients = yield* Effect.provide(
    makeClients({ ...options, maxConnections: 1 }),
    Reactivity.layer,
  );
  yield* fillChats(sql, filledChatbot, 12_000);
  yield* settle(sql);
  const [store, archive] = yield* Effect.provideContext(
    Effect.all([ChatStore, ChatArchive]),
    services,
  );
  // All but every tenth, in no order, so that some come to bound pages.
  const isKept = (n: number) => n % 10 === 0;
  const chats = Array.from({ length: 300 }, (_, n) => `${(n * 7919) % 300}`.padStart(5, "0"));
  const made = yield* Effect.forEach(
    chats,
    (place, n) => {
      const text = `${place} ${isKept(n) ? "somebody else" : secret}`;
      const chat = { name: text, userRef: text, helloMessage: null };
      return store.createChat(filledChatbot, chat, { key: text, fingerprint: "f" });
    },
    { concurrency: 500 },
  );
  /** Items of a B-tree whose key holds the secret, dead or not; pages of a GIN index that hold a part of it, a number. */
  const heldIn = (index: string) =>
    Effect.map(
      inspector.unsafe<{ readonly n: number }>(
        index === "chat_folded_name"
          ? `select count(*)::int4 as n
            from generate_series(1, (pg_relation_size('${index}') / 8192 - 1)::int8) page
            where position($1::bytea in public.get_raw_page('parley.${index}', page)) > 0`
          : `select count(*)::int4 as n
            from generate_series(1, (pg_relation_size('${index}') / 8192 - 1)::int8) page,
              lateral public.bt_page_items('parley.${index}', page) item
            where position($1 in replace(item.data, ' ', '')) > 0`,
        [index === "chat_folded_name" ? Buffer.from("apz\0") : Buffer.from(secret).toString("hex")],
      ),
      ([row]) => row!.n,
    );
  const held = Effect.all(
    ["chat_name", "chat_user_ref", "request_pkey", "chat_folded_name"].map(heldIn),
  );
  /** How much is another matter: a writer in another database can keep what VACUUM would remove. */
  const holdsAll = Effect.map(held, (counts) => assert.isTrue(counts.every((count) => count > 0)));
  const counts = yield* held;
  assert.isTrue(counts.slice(0, 3).every((count) => count >= 270) && counts[3]! > 0);
  const erase = Effect.forEach(
    made.filter((_, n) => !isKept(n)),
    ({ chat }) => archive.erase(filledChatbot, { _tag: "Chat", id: chat.id }),
    { discard: true },
  );
  const another = clientOf("parley", 1, url);
  return { another, clients, erase, held, holdsAll, inspector, sql, store };
});
