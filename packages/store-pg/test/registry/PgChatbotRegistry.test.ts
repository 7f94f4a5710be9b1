import { assert, layer } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  defaultSettings,
  newestChats,
  type ArchiveRecord,
} from "@parley/core";
import { Deferred, Effect, Fiber, Latch, Queue, Stream } from "effect";
import { clientOf, freshSchema, layerPostgresUnderTest } from "../PostgresUnderTest.ts";

const schema = freshSchema();

let chatbots = 0;

const newChatbot = ChatbotRegistry.use((registry) =>
  registry.create(
    {
      workspaceName: "Registry",
      name: `Chatbot ${++chatbots}`,
      description: "",
      settings: defaultSettings,
      keys: [keyRecord()],
    },
    "test",
  ),
);

let keys = 0;
const keyRecord = () => ({
  id: `key ${++keys}`,
  hash: new Uint8Array(32),
  name: null,
  scopes: ["read"] as const,
  expiresAt: null,
});

// Hints come from all of its database.
layer(layerPostgresUnderTest(), { excludeTestServices: true })("registry on PostgreSQL", (it) => {
  it.effect("every change is hinted once, and what changes nothing is not", () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const hints = yield* Queue.unbounded<number | null>();
      const listening = yield* Stream.runForEach(directory.changed, (hint) =>
        Queue.offer(hints, hint),
      ).pipe(Effect.forkChild);
      // Listening begins at some time, and what was before is not hinted.
      const first = yield* newChatbot;
      let hint: number | null = null;
      for (let n = 0; hint !== first.id; n++) {
        yield* registry.change(first.id, { description: String(n) }, "test");
        hint = (yield* Effect.timeoutOption(Queue.take(hints), "500 millis")).pipe((found) =>
          found._tag === "Some" ? found.value : null,
        );
      }
      const { id } = yield* newChatbot;
      const registered = (yield* registry.list).find(({ chatbot }) => chatbot.id === id)!;
      const keyId = registered.keys[0]!.id;
      /** How often the chatbot is hinted by the change, before a creation that comes after it. */
      const hintsOf = Effect.fnUntraced(function* (change: Effect.Effect<unknown, unknown>) {
        yield* Effect.exit(change);
        const after = yield* newChatbot;
        for (let count = 0; ;) {
          const hint = yield* Queue.take(hints);
          if (hint === after.id) return count;
          if (hint === id) count++;
        }
      });
      // Of what came before.
      yield* hintsOf(Effect.void);
      const added = keyRecord();
      const changes: ReadonlyArray<readonly [Effect.Effect<unknown, unknown>, number]> = [
        [registry.change(id, { settings: { model: "large" } }, "test"), 1],
        [registry.change(id, { settings: { model: "large" } }, "test"), 0],
        [registry.change(id, { settings: { retentionDays: null } }, "test"), 0],
        [registry.change(id, { workspaceName: "Moving" }, "test"), 1],
        [registry.renameWorkspace("Moving", "Moved", { merge: false }, "test"), 1],
        [registry.renameWorkspace("Moved", "Moved", { merge: false }, "test"), 0],
        [registry.addKey(id, added, "test"), 1],
        [registry.addKey(id, added, "test"), 0],
        [registry.changeKey(id, keyId, { name: "named" }, "test"), 1],
        [registry.changeKey(id, keyId, { name: "named" }, "test"), 0],
        [registry.replaceKey(id, keyId, keyRecord(), new Date("2040-01-01"), "test"), 1],
        [registry.revokeKey(id, keyId, "test"), 1],
        [registry.revokeKey(id, keyId, "test"), 0],
        [directory.used([added.id]), 0],
        [registry.delete(id, "test"), 1],
        [registry.delete(id, "test"), 0],
      ];
      for (const [at, [change, expected]] of changes.entries()) {
        assert.strictEqual(yield* hintsOf(change), expected, `change ${at}`);
      }
      yield* Fiber.interrupt(listening);
    }),
  );

  it.effect("the last use of a key is written once a minute, whoever tells of it", () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const { id } = yield* newChatbot;
      const key = Effect.map(
        registry.list,
        (all) => all.find(({ chatbot }) => chatbot.id === id)!.keys[0]!,
      );
      const { id: keyId } = yield* key;
      yield* directory.used([keyId]);
      const { lastUsedAt } = yield* key;
      yield* directory.used([keyId]);
      assert.isNotNull(lastUsedAt);
      assert.deepStrictEqual((yield* key).lastUsedAt, lastUsedAt);
    }),
  );

  it.effect("settings are changed while an import runs", () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const archive = yield* ChatArchive;
      const store = yield* ChatStore;
      const { id } = yield* newChatbot;
      const begun = yield* Deferred.make<void>();
      const gate = yield* Latch.make(false);
      const chat = (id: number): ArchiveRecord => ({
        _tag: "Chat",
        chat: { id, name: null, userRef: null, createTime: new Date(id) },
      });
      const records = Stream.concat(
        Stream.fromIterable(Array.from({ length: 3000 }, (_, n) => chat(n + 1))),
        Stream.fromEffect(
          Effect.as(Effect.andThen(Deferred.succeed(begun, undefined), gate.await), chat(3001)),
        ),
      );
      const importing = yield* Effect.forkChild(archive.import(id, records, "test"));
      yield* Deferred.await(begun);
      const changed = yield* registry.change(id, { settings: { helloMessage: "Hi" } }, "test");
      assert.strictEqual(changed.settings.helloMessage, "Hi");
      yield* registry.change(id, { name: `Renamed ${id}` }, "test");
      yield* registry.addKey(id, keyRecord(), "test");
      yield* gate.open;
      assert.strictEqual(yield* Fiber.join(importing), 3001);
      assert.strictEqual((yield* store.listChats(id, newestChats)).total, 3001);
    }),
  );

  it.effect("creations that share keys and names are created whole or not at all", () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const shared = Array.from({ length: 100 }, keyRecord);
      const created = yield* Effect.all(
        [shared, shared.toReversed()].map((keys) =>
          Effect.result(
            registry.create(
              {
                workspaceName: "Crossing",
                name: `Crossing ${++chatbots}`,
                description: "",
                settings: defaultSettings,
                keys,
              },
              "test",
            ),
          ),
        ),
        { concurrency: "unbounded" },
      );
      assert.deepStrictEqual(
        created.map((one) => (one._tag === "Success" ? "made" : one.failure._tag)).toSorted(),
        ["KeyTaken", "made"],
      );
    }),
  );

  it.effect("of two renames to one new workspace that meet, one is refused without merge", () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      for (let round = 0; round < 5; round++) {
        const to = `To ${round}`;
        const renames = yield* Effect.forEach([1, 2], (n) =>
          Effect.gen(function* () {
            const from = `From ${round} ${n}`;
            const { id } = yield* newChatbot;
            yield* registry.change(id, { workspaceName: from }, "test");
            return Effect.result(registry.renameWorkspace(from, to, { merge: false }, "test"));
          }),
        );
        const outcomes = yield* Effect.all(renames, { concurrency: "unbounded" });
        assert.deepStrictEqual(
          outcomes.map((one) => (one._tag === "Success" ? "moved" : one.failure._tag)).toSorted(),
          ["WorkspaceTaken", "moved"],
        );
      }
    }),
  );
});

layer(layerPostgresUnderTest({ schema }))("deletion on PostgreSQL", (it) => {
  it.effect("a deleted chatbot leaves rows in the audit alone", () =>
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const store = yield* ChatStore;
      const { id } = yield* newChatbot;
      const chat = { name: "n", userRef: "u", helloMessage: "Hello" };
      const idempotencyKey = { key: `key of ${id}`, fingerprint: "f" };
      yield* store.createChat(id, chat, idempotencyKey);
      yield* registry.delete(id, "test");
      const sql = yield* clientOf(schema, 1);
      const tables = yield* sql.unsafe<{ readonly name: string }>(tablesOfChatbots);
      assert.isAbove(tables.length, 4);
      for (const { name } of tables) {
        const rows = yield* sql.unsafe(`select from ${name} where chatbot_id = ${id}`);
        assert.strictEqual(rows.length > 0, name === "audit", name);
      }
      const created = yield* Effect.flip(store.createChat(id, chat, null));
      assert.strictEqual(created._tag, "ChatbotNotFound");
    }),
  );
});

const tablesOfChatbots = `
select table_name as name from information_schema.columns
where table_schema = current_schema() and column_name = 'chatbot_id'`;
