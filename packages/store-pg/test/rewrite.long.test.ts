/**
 * That no byte of erased texts is left in files, and what others in the database can do about it.
 */
import { assert, describe, it } from "@effect/vitest";
import { Effect, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { inject } from "vitest";
import { makeClients } from "../src/Clients.ts";
import { compactErased } from "../src/Compaction.ts";
import { doing, fewErased, lasting, secret } from "./erased.ts";
import { warningsOf } from "./PostgresUnderTest.ts";

describe("bytes of erased texts", () => {
  const some = Effect.gen(function* () {
    const { another, clients, chatbot, erase, inspector, sql, store, turns } = yield* fewErased;
    // So long that some of it is stored elsewhere, however well it is compressed.
    const text = () => Array.from({ length: 500 }, () => `${secret} ${Math.random()}`).join(" ");
    for (let n = 0; n < 40; n++) {
      const isErased = n % 8 === 0;
      const own = isErased ? text() : text().replaceAll(secret, "somebody else");
      const chat = { name: own.slice(0, 250), userRef: isErased ? "u" : null, helloMessage: own };
      const key = `${own.slice(0, 20)} ${n}`;
      const made = yield* store.createChat(chatbot, chat, { key, fingerprint: "f" });
      const taken = yield* turns.take(chatbot, made.chat.id, null);
      if (taken._tag !== "Turn") return assert.fail("the turn is free");
      const entry = { moderation: "none", flagged: false, usage: null };
      yield* turns.append(taken.turn, { question: own.slice(0, 1000), answer: own, ...entry });
    }
    yield* sql.unsafe("analyze");
    // Compressed texts have the rest in parts.
    const beginning = secret.slice(0, 7);
    /** Relations in whose files they are, as they are or in the small letters of searches. */
    const held = Effect.gen(function* () {
      yield* inspector.unsafe("checkpoint");
      const found = yield* inspector.unsafe<{ readonly name: string }>(
        `select name from (
          select oid::regclass::text as name, pg_read_binary_file(pg_relation_filepath(oid)) as file
          from pg_class where relkind in ('r', 'i', 't', 'm') and relpersistence = 'p'
            and pg_relation_filepath(oid) like 'base/%'
        ) files
        where position($1::bytea in file) > 0 or position($2::bytea in file) > 0 order by 1`,
        [Buffer.from(beginning), Buffer.from(beginning.toLowerCase())],
      );
      return found.map(({ name }) => name.replace(/\d+$/, ""));
    });
    return { another, clients, erase, held, sql };
  });

  for (const { limits, pace } of [
    { pace: "thorough" as const, limits: { longest: 10_000 } },
    { pace: "full" as const, limits: { largest: 0 } },
  ]) {
    const size = pace === "thorough" ? "small" : "large";
    it.live(
      `are in no file of ${size} tables after a ${pace} compaction`,
      () =>
        Effect.gen(function* () {
          const { clients, erase, held, sql } = yield* some;
          assert.includeMembers(yield* held, ["chat", "entry", "request", "pg_toast.pg_toast_"]);
          yield* erase;
          // As one that was killed left it, and a rewriting made it whole.
          yield* sql.unsafe("create index chat_name_ccnew on chat (name)");
          const compact = compactErased(clients, pace, limits);
          // An autovacuum is in the way for a while.
          const left = yield* Effect.repeat(Effect.andThen(compact, held), {
            until: (names) => names.length === 0,
            times: 9,
          });
          assert.deepStrictEqual(left, []);
          const unseen = yield* sql.unsafe(
            `select relname from pg_class where relname in ('chat', 'entry', 'request')
              and relallvisible < relpages or relname = 'chat_name_ccnew'`,
          );
          assert.deepStrictEqual(unseen, []);
        }).pipe(Effect.scoped),
      60_000,
    );
  }

  for (const pace of ["thorough", "full"] as const) {
    it.live(`stay where somebody uses the tables, and nobody waits for ever (${pace})`, () =>
      Effect.gen(function* () {
        const { another, clients, erase, held } = yield* some;
        yield* erase;
        const user = yield* another;
        const using = yield* lasting(user, user.unsafe("select from entry limit 1"));
        const busy = doing(clients, "vacuum (full) ", using.begin);
        const compact = compactErased(busy, pace, { longest: 10_000, patience: 3 });
        const warnings = yield* warningsOf(Effect.map(compact, assert.isFalse)).pipe(
          Effect.ensuring(using.end),
        );
        assert.include(
          warnings.join(),
          `may stay in entry${pace === "full" ? ", request" : ""}: others in the database`,
        );
        assert.isNotEmpty(yield* held);
        const left = yield* Effect.repeat(
          Effect.andThen(compactErased(clients, pace, { longest: 10_000 }), held),
          { until: (names) => names.length === 0, times: 9 },
        );
        assert.deepStrictEqual(left, []);
      }).pipe(Effect.timeout("20 seconds"), Effect.scoped),
    );
  }

  it.live("go with those who hold the tables for a moment", () =>
    Effect.gen(function* () {
      const { another, clients, erase } = yield* fewErased;
      yield* erase;
      const user = yield* another;
      const holding = yield* lasting(user, user.unsafe("lock table chat in access exclusive mode"));
      const begin = Effect.andThen(
        holding.begin,
        Effect.forkDetach(Effect.andThen(Effect.sleep("500 millis"), holding.end)),
      );
      const busy = doing(clients, "pg_total_relation_size", Effect.asVoid(begin));
      assert.isTrue(yield* compactErased(busy, "thorough"));
    }).pipe(Effect.scoped),
  );

  it.live("are no reason to keep everybody from the statistics", () =>
    Effect.gen(function* () {
      const { another, clients, erase, filed } = yield* fewErased;
      yield* erase;
      const user = yield* another;
      const using = yield* lasting(
        user,
        // It holds what it has read, and sees nothing any more.
        Effect.andThen(
          user.unsafe("select count(*) from pg_stats"),
          user.unsafe("set local jit = off"),
        ),
      );
      yield* using.begin;
      const before = yield* filed;
      // Not for all of the half minute that it may take the other tables.
      const compact = Effect.timeout(compactErased(clients, "full"), "20 seconds");
      const warnings = yield* warningsOf(Effect.map(compact, assert.isFalse)).pipe(
        Effect.ensuring(using.end),
      );
      assert.deepStrictEqual(warnings, [
        "Bytes of what was erased may stay in pg_statistic: others in the database are in the way",
      ]);
      const after = yield* filed;
      assert.isTrue(before.every((file) => !after.includes(file)));
    }).pipe(Effect.scoped),
  );

  it.live.runIf(inject("postgresVersion") >= 17)(
    "go by a full compaction of any role that may VACUUM the tables",
    () =>
      Effect.gen(function* () {
        const { clients, erase, filed, inspector, server, sql } = yield* fewErased;
        const own = yield* Effect.provide(makeClients(server), Reactivity.layer);
        const rewritten = Effect.fnUntraced(function* (isAll: boolean) {
          const before = yield* filed;
          const warnings = yield* warningsOf(
            Effect.map(compactErased(own, "full"), (done) => assert.strictEqual(done, isAll)),
          );
          const after = yield* filed;
          assert.isTrue(before.every((file) => !after.includes(file)));
          return warnings;
        });
        yield* erase;
        yield* sql.unsafe("create index chat_name_ccnew on chat (name)");
        const left =
          "Texts of what was erased may stay in chat_name_ccnew: their owner can DROP them";
        assert.deepStrictEqual(yield* rewritten(false), [
          left,
          "Statistics of what was erased may stay in pg_catalog.pg_statistic: the database's owner can VACUUM it",
        ]);

        const { username } = new URL(Redacted.value(server.url));
        yield* sql.unsafe(`revoke maintain on chat, entry, request from ${username}`);
        const [database] = yield* sql.unsafe<{ readonly name: string }>(
          "select current_database() as name",
        );
        yield* inspector.unsafe(`alter database ${database!.name} owner to ${username}`);
        assert.deepStrictEqual(yield* rewritten(true), [left]);
        assert.isTrue(yield* compactErased(clients, "quick"));
        assert.deepStrictEqual(yield* rewritten(true), []);
      }).pipe(Effect.scoped),
  );
});
