import { assert, it } from "@effect/vitest";
import { Access, Administration, keyRecord, scopes, type ChatbotSettings } from "@parley/core";
import { ChatbotRegistry, ChatStore, type KeyChange } from "@parley/core/ports";
import { layerMemory } from "@parley/store-memory";
import { Duration, Effect, Layer, Redacted } from "effect";
import { Digest, SecureRandom } from "effect/crypto";

const administered = Effect.provide(
  Layer.mergeAll(Administration.layer, Access.layer).pipe(
    Layer.provideMerge(layerMemory),
    Layer.provideMerge(Layer.merge(Digest.layerWebCrypto, SecureRandom.layerWebCrypto)),
  ),
);

const helpdesk = { workspaceName: "Acme", name: "Helpdesk" };

it.effect(
  "invalid settings, names, keys and actors are rejected, and nothing is written to the audit log",
  () =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      const { id } = yield* administration.createChatbot(helpdesk, "ann");
      const { id: key } = yield* administration.createKey(id, { scopes }, "ann");
      const widget = { scopes, visitors: true, origins: ["https://shop.example"] };
      const { id: widgetKey } = yield* administration.createKey(id, widget, "ann");
      const lines = yield* administration.audit(100);
      const change = (settings: Partial<ChatbotSettings>, actor = "ann") =>
        administration.changeChatbot(id, { settings }, actor);
      const names = ["", "\t\n\u00a0\u3000", "x".repeat(256)];
      const folders = ["../secrets", "a/b", ".", "a\u2028b"];
      const hour = Duration.hours(1);
      const longAgo = new Date(Date.UTC(-5000));
      const refused = [
        change({ helloMessage: "\0" }),
        change({ instructions: "x".repeat(100_001) }),
        change({ model: " " }),
        ...folders.map((knowledge) => change({ knowledge })),
        change({ retentionDays: 0 }),
        change({ moderation: "sometimes" as "off" }),
        change({ unknown: 1 } as object),
        change({ helloMessage: "Hi" }, "a\0"),
        change({ helloMessage: "Hi" }, " "),
        ...names.map((name) => administration.createChatbot({ ...helpdesk, name }, "ann")),
        administration.createKey(id, { scopes: ["admin" as "read"] }, "ann"),
        administration.createKey(id, { scopes: ["read", "read"] }, "ann"),
        administration.createKey(id, { scopes: [] }, "ann"),
        administration.createKey(id, { scopes, expiresAt: new Date(Number.NaN) }, "ann"),
        administration.changeKey(id, key, { expiresAt: longAgo }, "ann"),
        administration.createKey(id, { scopes, tokensPerDay: 0 }, "ann"),
        administration.createKey(id, { scopes, visitors: true, visitorRatePerMinute: 0 }, "ann"),
        administration.changeKey(id, key, { signingSecret: "" }, "ann"),
        administration.createKey(id, { scopes }, " "),
        ...["shop.example", "https://a/b", "https://*"].map((origin) =>
          administration.changeKey(id, key, { origins: [origin] }, "ann"),
        ),
        administration.rotateKey(id, key, { keepFor: Duration.infinity }, "ann"),
        administration.rotateKey(id, key, { keepFor: hour, expiresAt: longAgo }, "ann"),
        administration.person("\0"),
        administration.createKey(id, { ...widget, scopes: ["read", "ask", "delete"] }, "ann"),
        administration.changeKey(id, widgetKey, { scopes: ["read"] }, "ann"),
        // The key signs no visitor tokens.
        ...[{ origins: ["https://shop.example"] }, { visitorRatePerMinute: 10 }].flatMap(
          (fields) => [
            administration.createKey(id, { scopes, ...fields }, "ann"),
            administration.changeKey(id, key, fields, "ann"),
          ],
        ),
      ];
      for (const [at, call] of refused.entries()) {
        const { _tag } = yield* Effect.flip(call as Effect.Effect<unknown, { _tag: string }>);
        assert.strictEqual(_tag, "ArgumentInvalid", String(at));
      }
      const { message } = yield* Effect.flip(change({ retentionDays: 0, knowledge: ".." }));
      assert.strictEqual(
        message,
        "settings.knowledge: begins with a dot, or contains a slash, backslash, line break or control character; settings.retentionDays: Expected a value between 1 and 36500.",
      );
      assert.deepStrictEqual(yield* administration.audit(100), lines);
    }).pipe(administered),
);

it.effect(
  "deleting a chatbot erases its keys and chats, and completes an earlier deletion that was interrupted",
  () =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      const access = yield* Access;
      const store = yield* ChatStore;
      const { id } = yield* administration.createChatbot(helpdesk, "ann");
      const { id: keyId, key } = yield* administration.createKey(id, { scopes }, "ann");
      const old = yield* administration.createKey(id, { scopes }, "ann");
      yield* administration.revokeKey(id, old.id, "ann");
      const liveKey = yield* administration.createKey(id, { scopes }, "ann");
      const chat = { name: null, userRef: null, helloMessage: null };
      yield* store.createChat(id, chat, null);
      yield* store.createChat(id, chat, null);
      const revoked = yield* Effect.flip(access.authenticate(Redacted.value(old.key)));
      assert.deepInclude(revoked, { reason: "revoked", apiKeyId: old.id });
      // As if an earlier deletion had been killed after it revoked one of the keys.
      yield* administration.revokeKey(id, keyId, "ann");
      assert.strictEqual(yield* administration.deleteChatbot(id, "ann"), 2);
      for (const text of [key, liveKey.key]) {
        const rejected = yield* Effect.flip(access.authenticate(Redacted.value(text)));
        assert.strictEqual(rejected._tag, "KeyRejected");
      }
      const again = yield* Effect.flip(administration.deleteChatbot(id, "ann"));
      assert.strictEqual(again._tag, "ChatbotNotFound");
      const lines = yield* administration.audit(4);
      assert.deepStrictEqual(
        lines.map(({ action, detail }) => `${action} ${detail}`),
        ["delete Helpdesk", "erase 2 chats", `revoke-key ${liveKey.id}`, `revoke-key ${keyId}`],
      );
      const next = yield* administration.createChatbot(helpdesk, "ann");
      assert.notStrictEqual(next.id, id);
    }).pipe(administered),
);

it.effect(
  "rotating a key copies all its fields except the expiry, and never extends the old key's lifetime",
  () =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      const { id } = yield* administration.createChatbot(helpdesk, "ann");
      const { now } = yield* ChatbotRegistry;
      const soon = new Date((yield* now).getTime() + 60_000);
      const fields = { name: "app", scopes: ["ask"], ratePerMinute: 9 } as const;
      for (const expiresAt of [soon, null]) {
        const old = yield* administration.createKey(id, { ...fields, expiresAt }, "ann");
        const keepFor = Duration.minutes(10);
        const { replacedKey, ...fresh } = yield* administration.rotateKey(
          id,
          old.id,
          { keepFor },
          "ann",
        );
        const expected = expiresAt ?? new Date((yield* now).getTime() + 600_000);
        assert.deepStrictEqual(replacedKey.expiresAt, expected);
        const { keys } = yield* administration.chatbot(id);
        const [before, after] = [old, fresh].map((key) => keys.find(({ id }) => id === key.id)!);
        assert.deepStrictEqual(before!.expiresAt, expected);
        assert.deepInclude(after, { ...fields, expiresAt: null });
        yield* administration.revokeKey(id, fresh.id, "ann");
        const revoked = administration.rotateKey(id, fresh.id, { keepFor }, "ann");
        assert.strictEqual((yield* Effect.flip(revoked))._tag, "KeyNotFound");
      }
    }).pipe(administered),
);

it.effect(
  "a key's widget admits strangers only while the key signs visitor tokens and limits what visitors spend",
  () =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      const { id } = yield* administration.createChatbot(helpdesk, "ann");
      const bounds = { visitors: true, visitorRatePerMinute: 10, tokensPerDay: 1000 };
      const fields = { scopes, anonymous: true, ...bounds };
      const key = yield* administration.createKey(id, fields, "ann");
      const record = yield* keyRecord(Redacted.value(key.key), { anonymous: true });
      const lines = yield* administration.audit(100);
      const change = (change: KeyChange) => administration.changeKey(id, key.id, change, "ann");
      for (const call of [
        administration.createKey(id, { ...fields, visitors: false }, "ann"),
        administration.createKey(id, { ...fields, visitorRatePerMinute: null }, "ann"),
        administration.createKey(id, { scopes, anonymous: true, visitors: true }, "ann"),
        administration.addKey(id, record, "ann"),
        administration.createChatbot({ ...helpdesk, name: "Sales", keys: [record] }, "ann"),
        change({ tokensPerDay: null }),
        change({ visitorRatePerMinute: null, ratePerMinute: 5 }),
        change({ signingSecret: null }),
      ]) {
        const error = yield* Effect.flip(call as Effect.Effect<unknown, Error>);
        assert.strictEqual(
          error.message,
          "A key whose widget anyone can use needs visitors, visitorRatePerMinute and tokensPerDay.",
        );
      }
      assert.deepStrictEqual(yield* administration.audit(100), lines);
      yield* change({ tokensPerDay: 5, visitorRatePerMinute: 1 });
      yield* change({ anonymous: false, tokensPerDay: null });
    }).pipe(administered),
);

it.effect("a key that lacks a widget's scopes can still be changed in other ways", () =>
  Effect.gen(function* () {
    const administration = yield* Administration;
    const { id } = yield* administration.createChatbot(helpdesk, "ann");
    const widget = { scopes, visitors: true, origins: ["https://shop.example"] };
    const { id: key } = yield* administration.createKey(id, widget, "ann");
    // As an earlier version allowed.
    const registry = yield* ChatbotRegistry;
    yield* registry.changeKey(id, key, { scopes: ["read"] }, "ann");
    yield* administration.changeKey(id, key, { ratePerMinute: 5 }, "ann");
    yield* administration.changeKey(id, key, { scopes }, "ann");
  }).pipe(administered),
);
