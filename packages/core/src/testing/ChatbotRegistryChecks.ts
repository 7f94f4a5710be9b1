/**
 * What `ChatbotRegistry` and `ChatbotDirectory` promise, over the same data.
 */
import { Effect, Fiber } from "effect";
import { ChatbotDirectory } from "../ChatbotDirectory.ts";
import { ChatbotRegistry } from "../ChatbotRegistry.ts";
import { ChatbotNotFound, ChatbotTaken, KeyNotFound, KeyTaken } from "../Errors.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import { pass } from "./Fixtures.ts";
import { byId, fresh, found, keyOf, newChatbot, newKey, notesOf } from "./RegistryFixtures.ts";
import { registryRaceChecks } from "./RegistryRaceChecks.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

export const chatbotRegistryChecks: ReadonlyArray<
  Check<ChatbotRegistry | ChatbotDirectory | StoreUnderTest>
> = [
  check(
    "a chatbot is what was declared, and its keys open it",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const keys = [
        newKey(),
        newKey({
          name: "n".repeat(300),
          scopes: [],
          expiresAt: new Date("9999-12-31T23:59:59.997Z"),
        }),
        // A hash may be part of more bytes, and an end long ago.
        newKey({ hash: new Uint8Array(64).fill(7).subarray(8, 40), expiresAt: new Date(0) }),
      ];
      const declared = newChatbot({
        keys,
        // As long as one may be, and more bytes than that; cut anywhere, one of them is cut within a character.
        description: "é".repeat(100_000),
        settings: {
          helloMessage: "😀".repeat(50_000),
          moderationErrorMessage: `x${"😀".repeat(50_000)}`,
          instructions: 'Be "brief"\n',
          model: "2024.10",
          moderation: "words",
          knowledge: "007",
          retentionDays: 36_500,
        },
      });
      const chatbot = yield* registry.create(declared, "somebody");
      const { keys: _, ...rest } = declared;
      yield* same("the chatbot", chatbot, { id: chatbot.id, ...rest });
      yield* same("a positive id", Number.isSafeInteger(chatbot.id) && chatbot.id > 0, true);
      const listed = yield* found(chatbot.id);
      yield* same("as it is listed", listed?.chatbot, chatbot);
      yield* same(
        "its keys",
        listed?.keys.map(({ createdAt: _, ...key }) => key).toSorted(byId),
        keys.map((one) => ({ ...one, revokedAt: null, lastUsedAt: null })).toSorted(byId),
      );
      for (const { expiresAt, hash, id, scopes } of keys) {
        const opened = yield* directory.open(id);
        yield* same("what the key opens", opened, { hash, scopes, expiresAt, chatbot });
      }
      yield* same("an unknown key", yield* directory.open(fresh("key")), null);
      yield* same("no key", yield* directory.open(""), null);
      yield* same("the notes", yield* notesOf(chatbot.id), [
        `somebody create ${declared.name}`,
        ...keys.map(({ id }) => `somebody add-key ${id}`),
      ]);
      const description = `${declared.description.slice(1)}e`;
      yield* registry.change(chatbot.id, { description }, "somebody");
      const changed = (yield* found(chatbot.id))?.chatbot.description;
      yield* same("a long text that differs in its last character", changed, description);
    }),
  ),

  check(
    "what is written is kept as it is, whatever it may be taken for",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      // As long as a name may be, nearly.
      const name = `${fresh("chatbot")} ${"😀".repeat(200)}`;
      const { id } = yield* registry.create(newChatbot({ name }), "somebody");
      yield* same("who was made", yield* notesOf(id), [`somebody create ${name}`]);
      const texts = [
        "007",
        "1e3",
        "true",
        "null",
        "NULL",
        "\\N",
        "{}",
        "é",
        "e\u0301",
        "a",
        "A",
        "\ufeff",
      ];
      // Some are of hours that summer time leaves out, or has twice.
      const times = [
        "1970-01-01T00:00:00.001Z",
        "2024-12-30T12:00:00.001Z",
        "2027-03-14T02:30:00.000Z",
        "2027-03-28T01:30:00.000Z",
        "2027-03-28T02:30:00.000Z",
        "2027-10-31T01:30:00.000Z",
        "2027-11-07T01:30:00.000Z",
        "2038-01-19T03:14:08.000Z",
        "2286-11-20T17:46:40.000Z",
      ];
      const keys = [
        ...texts.map((name) => newKey({ name })),
        ...times.map((time) => newKey({ expiresAt: new Date(time) })),
      ];
      for (const key of keys) yield* registry.addKey(id, key, "somebody");
      const kept = (yield* found(id))?.keys ?? [];
      yield* same(
        "names and ends",
        kept.toSorted(byId).map(({ expiresAt, name }) => [name, expiresAt]),
        keys.toSorted(byId).map(({ expiresAt, name }) => [name, expiresAt]),
      );
      for (const text of texts) {
        const change = { description: text, settings: { model: text, instructions: text } };
        const changed = yield* registry.change(id, change, "somebody");
        yield* same("what changed", (yield* found(id))?.chatbot, changed);
        yield* same("the text", [changed.description, changed.settings.model], [text, text]);
      }
      // As long as an actor's name may be.
      const actors = ["é", "e\u0301", "A", "a", "a ", "😀".repeat(255)];
      for (const [n, actor] of actors.entries()) {
        yield* registry.change(id, { description: `by ${n}` }, actor);
      }
      const noted = (yield* registry.audit(actors.length)).map(({ actor }) => actor).toReversed();
      yield* same("who changed it", noted, actors);
      for (const limit of [255, 256, 65_535, 65_536, 2 ** 31 - 1]) {
        const [newest] = yield* registry.audit(limit);
        yield* same(`who changed it, of ${limit} lines`, newest?.actor, actors.at(-1));
      }
    }),
  ),

  check(
    "of very many chatbots and keys all are written, or none",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const [from, to] = [fresh("from"), fresh("to")];
      const many = yield* Effect.forEach(
        Array.from({ length: 120 }, () => newChatbot({ workspaceName: from })),
        (one) => registry.create(one, "somebody"),
        { concurrency: 16 },
      );
      const last = many.toSorted((a, b) => a.id - b.id).at(-1)!;
      const inTheWay = yield* registry.create(
        newChatbot({ workspaceName: to, name: last.name }),
        "somebody",
      );
      const namesIn = (workspaceName: string) =>
        Effect.map(registry.list, (all) =>
          all
            .filter(({ chatbot }) => chatbot.workspaceName === workspaceName)
            .map(({ chatbot }) => chatbot.name)
            .toSorted(),
        );
      const rename = registry.renameWorkspace(from, to, "somebody");
      const taken = new ChatbotTaken({ workspaceName: to, name: last.name });
      yield* failsWith("where one name is taken", taken, rename);
      const names = many.map(({ name }) => name).toSorted();
      yield* same("who stays", yield* namesIn(from), names);
      yield* registry.change(inTheWay.id, { workspaceName: fresh("away") }, "somebody");
      yield* rename;
      yield* same("who moved", yield* namesIn(to), names);

      const keys = Array.from({ length: 120 }, () => newKey());
      const twice = new KeyTaken({ keyId: keys[0]!.id });
      const declared = newChatbot({ keys: [...keys, keys[0]!] });
      yield* failsWith("the same key far apart", twice, registry.create(declared, "somebody"));
      for (let steps = 0; steps < 6; steps++) {
        const mine = newChatbot({ keys: keys.map((key) => ({ ...key, id: fresh("key") })) });
        const creation = yield* Effect.forkChild(registry.create(mine, "somebody"));
        for (let step = 0; step < steps; step++) yield* Effect.yieldNow;
        yield* Fiber.interrupt(creation);
        const made = (yield* registry.list).find(({ chatbot }) => chatbot.name === mine.name);
        const how = made === undefined ? "not at all" : made.keys.length;
        yield* same("what was interrupted", how, made === undefined ? how : mine.keys.length);
      }
    }),
  ),

  check(
    "a name is one chatbot's in a workspace, also when two are made at once",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const declared = newChatbot({ workspaceName: fresh("A") });
      const made = yield* Effect.all(
        [1, 2, 3].map(() => Effect.result(registry.create(declared, "somebody"))),
        { concurrency: "unbounded" },
      );
      yield* same(
        "what came of it",
        made.map((one) => (one._tag === "Success" ? "made" : one.failure._tag)).toSorted(),
        ["ChatbotTaken", "ChatbotTaken", "made"],
      );
      const elsewhere = yield* registry.create(
        { ...declared, workspaceName: fresh("B") },
        "somebody",
      );
      const other = yield* registry.create({ ...declared, name: fresh("chatbot") }, "somebody");
      const { name } = declared;
      const { workspaceName } = declared;
      const chatbotTaken = new ChatbotTaken({ workspaceName, name });
      const more = { description: "another", settings: { model: "m" } };
      const renaming = registry.change(other.id, { name, ...more }, "somebody");
      yield* failsWith("its name", chatbotTaken, renaming);
      const moving = registry.change(elsewhere.id, { workspaceName }, "somebody");
      yield* failsWith("its workspace", chatbotTaken, moving);
      yield* same("the other", (yield* found(other.id))?.chatbot, other);
      yield* same("the one elsewhere", (yield* found(elsewhere.id))?.chatbot, elsewhere);
      const noted = yield* notesOf(other.id);
      yield* same("what was noted of it", noted, [`somebody create ${other.name}`]);
      const away = { workspaceName: fresh("C"), name };
      yield* same("both at once", yield* registry.change(other.id, away, "somebody"), {
        ...other,
        ...away,
      });
    }),
  ),

  check(
    "names are told apart however little they differ",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const workspace = fresh("é");
      const pairs: ReadonlyArray<readonly [workspaceName: string, name: string]> = [
        [workspace, "Name"],
        [workspace, "name "],
        [workspace, "name 🍣"],
        [workspace, "name 🍺"],
        // Of one sum each: CRC-32, FNV-1a, and that of Java's strings.
        ...["plumless", "buckeroo", "costarring", "liquid", "Aa", "BB"].map(
          (name) => [workspace, name] as const,
        ),
        [`${workspace} `, "name"],
        [workspace.toUpperCase(), "name"],
        [workspace.normalize("NFD"), "name"],
        // Written one after the other, with whatever between them, they are alike.
        ...[
          "",
          " ",
          "/",
          ":",
          "|",
          ".",
          "-",
          "_",
          "#",
          "\t",
          "\n",
          "\u001f",
          "\uffff",
          '","',
        ].flatMap((between) => [
          [workspace, `n${between}ame`] as const,
          [`${workspace}${between}n`, "ame"] as const,
        ]),
      ];
      const made = yield* Effect.forEach(pairs, ([workspaceName, name]) =>
        registry.create(newChatbot({ workspaceName, name }), "somebody"),
      );
      const to = fresh("to");
      yield* registry.renameWorkspace(workspace, to, "somebody");
      for (const { id, workspaceName } of made) {
        const now = (yield* found(id))?.chatbot.workspaceName;
        yield* same("its workspace", now, workspaceName === workspace ? to : workspaceName);
      }
    }),
  ),

  check(
    "a change changes what it names, and what its keys open",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const key = newKey();
      const { id, ...before } = yield* registry.create(newChatbot({ keys: [key] }), "somebody");
      const change = {
        description: "another",
        settings: { helloMessage: null, instructions: "Be kind", moderationErrorMessage: "No" },
      };
      const after = {
        id,
        ...before,
        ...change,
        settings: { ...before.settings, ...change.settings },
      };
      yield* same("the chatbot", yield* registry.change(id, change, "another"), after);
      yield* same("as it is listed", (yield* found(id))?.chatbot, after);
      yield* same("as the key opens it", (yield* directory.open(key.id))?.chatbot, after);
      yield* registry.change(id, change, "a third");
      yield* registry.change(id, {}, "a third");
      const renamed = { name: fresh("chatbot"), workspaceName: fresh("W") };
      yield* registry.change(id, renamed, "a fourth");
      yield* same("renamed", (yield* found(id))?.chatbot, { ...after, ...renamed });
      const opened = (yield* directory.open(key.id))?.chatbot;
      yield* same("renamed, as the key opens it", opened, { ...after, ...renamed });
      const { second } = yield* StoreUnderTest;
      const last = { name: fresh("chatbot"), settings: { model: "m" } };
      const changed = yield* second.registry.change(id, last, "a fifth");
      yield* same("as the key opens it", (yield* directory.open(key.id))?.chatbot, changed);
      const silent = { settings: { helloMessage: "" } };
      const final = { ...changed, settings: { ...changed.settings, ...silent.settings } };
      yield* same("by both", yield* registry.change(id, silent, "a sixth"), final);
      yield* same("as it is listed", (yield* found(id))?.chatbot, final);
      yield* same("the notes", yield* notesOf(id), [
        `somebody create ${before.name}`,
        `somebody add-key ${key.id}`,
        "another change description, helloMessage, instructions, moderationErrorMessage",
        "a fourth change name, workspaceName",
        "a fifth change model, name",
        "a sixth change helloMessage",
      ]);
      const unknown = id + 1_000_000;
      const missing = registry.change(unknown, change, "somebody");
      yield* failsWith("a chatbot that is not", new ChatbotNotFound({ chatbot: unknown }), missing);
    }),
  ),

  check(
    "a key is added, changed and, for ever, revoked",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const [key, kept] = [newKey({ id: fresh("b") }), newKey({ id: fresh("c") })];
      const { id } = yield* registry.create(newChatbot({ keys: [kept] }), "somebody");
      yield* pass(10);
      const other = yield* registry.create(newChatbot(), "somebody");
      yield* registry.addKey(id, key, "somebody");
      yield* same("what it opens", (yield* directory.open(key.id))?.chatbot.id, id);
      const added = yield* keyOf(id, key.id);
      const { second } = yield* StoreUnderTest;
      const [later, over] = [newKey({ id: fresh("a") }), newKey({ expiresAt: new Date(0) })];
      yield* pass(10);
      yield* same("what is not there yet", yield* directory.open(later.id), null);
      yield* second.registry.addKey(id, later, "somebody");
      yield* same("what is there now", (yield* directory.open(later.id))?.chatbot.id, id);
      const listed = (yield* found(id))?.keys.map((one) => one.id);
      yield* same("the keys, oldest first", listed, [kept.id, key.id, later.id]);
      yield* second.registry.addKey(id, over, "somebody");
      yield* registry.changeKey(id, over.id, { name: "over" }, "somebody");
      yield* registry.revokeKey(id, over.id, "somebody");
      yield* same("one that was over", yield* directory.open(over.id), null);
      yield* pass(10);

      const expiresAt = new Date("9999-12-31T23:59:59.997Z");
      yield* registry.changeKey(id, key.id, { scopes: ["write"], expiresAt }, "another");
      yield* registry.changeKey(id, key.id, { scopes: ["write"] }, "a third");
      yield* registry.changeKey(id, key.id, { name: "named" }, "another");
      const changed = yield* keyOf(id, key.id);
      yield* same(
        "what it is now",
        [changed?.name, changed?.scopes, changed?.expiresAt, changed?.createdAt],
        ["named", ["write"], expiresAt, added?.createdAt],
      );
      yield* registry.changeKey(id, key.id, { expiresAt: null, name: null }, "another");
      yield* same("without an end", (yield* directory.open(key.id))?.expiresAt, null);

      const theirs = registry.revokeKey(other.id, key.id, "somebody");
      const notFound = new KeyNotFound({ keyId: key.id });
      yield* failsWith("as another's", notFound, theirs);
      const change = (chatbot: number) => registry.changeKey(chatbot, key.id, { name: "x" }, "x");
      yield* failsWith("changed as another's", notFound, change(other.id));
      yield* registry.revokeKey(id, key.id, "another");
      yield* failsWith("revoked again", notFound, registry.revokeKey(id, key.id, "somebody"));
      yield* failsWith("changed when it is over", notFound, change(id));
      const taken = new KeyTaken({ keyId: key.id });
      yield* failsWith("brought back", taken, registry.addKey(id, key, "somebody"));
      yield* same("the revoked key", yield* directory.open(key.id), null);
      const revoked = yield* keyOf(id, key.id);
      yield* same("when", revoked?.revokedAt instanceof Date, true);
      yield* same("and what it was", revoked, {
        ...key,
        scopes: ["write"],
        createdAt: changed?.createdAt,
        revokedAt: revoked?.revokedAt,
        lastUsedAt: null,
      });
      yield* same("the other", (yield* directory.open(kept.id)) === null, false);
      yield* same("the notes", (yield* notesOf(id)).slice(2), [
        `somebody add-key ${key.id}`,
        ...[later, over].map((one) => `somebody add-key ${one.id}`),
        `somebody change-key ${over.id}: name`,
        `somebody revoke-key ${over.id}`,
        `another change-key ${key.id}: expiresAt, scopes`,
        `another change-key ${key.id}: name`,
        `another change-key ${key.id}: expiresAt, name`,
        `another revoke-key ${key.id}`,
      ]);
      const unknown = id + 1_000_000;
      const missing = registry.addKey(unknown, newKey(), "somebody");
      yield* failsWith("a chatbot that is not", new ChatbotNotFound({ chatbot: unknown }), missing);
      const keyMissing = new KeyNotFound({ keyId: kept.id });
      yield* failsWith(
        "a key of none",
        keyMissing,
        registry.changeKey(unknown, kept.id, { name: "x" }, "x"),
      );
      yield* failsWith("of none", keyMissing, registry.revokeKey(unknown, kept.id, "x"));

      // However often it was opened, and while it is.
      for (let n = 0; n < 300; n++) yield* directory.open(kept.id);
      const opening = yield* Effect.forkChild(directory.open(kept.id));
      yield* Effect.yieldNow;
      yield* second.registry.revokeKey(id, kept.id, "somebody");
      yield* same("a key that was opened often", yield* directory.open(kept.id), null);
      yield* Fiber.await(opening);
    }),
  ),

  check(
    "a key is replaced by one with its name and scopes, and ends no later than it would have",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const end = new Date("2032-01-01T00:00:00.000Z");
      const sooner = new Date("2031-01-01T00:00:00.000Z");
      const later = new Date("2033-01-01T00:00:00.000Z");
      const old = newKey({ name: "named", scopes: ["ask"], expiresAt: later });
      const ending = newKey({ expiresAt: sooner });
      const sameEnd = newKey({ expiresAt: end });
      const over = newKey({ expiresAt: new Date(0) });
      const keys = [old, ending, sameEnd, over];
      const { id } = yield* registry.create(newChatbot({ keys }), "somebody");
      const other = yield* registry.create(newChatbot(), "somebody");
      const fresh = () => {
        const { hash, id } = newKey();
        return { id, hash, expiresAt: null };
      };
      const [a, b, c, d] = [fresh(), { ...fresh(), expiresAt: end }, fresh(), fresh()];
      yield* directory.used([old.id]);
      const replaced = yield* registry.replaceKey(id, old.id, a, end, "another");
      yield* same("what was replaced", replaced, {
        name: "named",
        scopes: ["ask"],
        expiresAt: end,
      });
      const again = yield* registry.replaceKey(id, ending.id, b, end, "another");
      yield* same("what ended sooner", again.expiresAt, sooner);
      const third = yield* registry.replaceKey(id, sameEnd.id, c, end, "another");
      yield* same("what ended then", third.expiresAt, end);
      const fourth = yield* registry.replaceKey(id, over.id, d, end, "another");
      yield* same("what was over", fourth.expiresAt, over.expiresAt);
      yield* same("as it is opened", (yield* directory.open(over.id))?.expiresAt, over.expiresAt);
      const uses = yield* Effect.forEach([old, a], ({ id: keyId }) => keyOf(id, keyId));
      yield* same(
        "which were used",
        uses.map((key) => key?.lastUsedAt !== null),
        [true, false],
      );
      const listed = yield* Effect.forEach([old, ending, a, b], (key) => keyOf(id, key.id));
      yield* same(
        "the keys",
        listed.map((key) => [key?.name, key?.scopes, key?.expiresAt]),
        [
          ["named", ["ask"], end],
          [null, ending.scopes, sooner],
          ["named", ["ask"], null],
          [null, ending.scopes, end],
        ],
      );
      yield* same("what the new one opens", (yield* directory.open(a.id))?.chatbot.id, id);
      yield* same("the notes", (yield* notesOf(id)).slice(1 + keys.length), [
        `another add-key ${a.id}`,
        `another change-key ${old.id}: expiresAt`,
        `another add-key ${b.id}`,
        `another add-key ${c.id}`,
        `another add-key ${d.id}`,
      ]);
      const notes = yield* notesOf(id);
      const replace = (chatbot: number, keyId: string, by: string) =>
        registry.replaceKey(chatbot, keyId, { ...fresh(), id: by }, end, "somebody");
      const notFound = new KeyNotFound({ keyId: a.id });
      yield* failsWith("by a known one", new KeyTaken({ keyId: b.id }), replace(id, a.id, b.id));
      yield* failsWith("as another's", notFound, replace(other.id, a.id, fresh().id));
      yield* registry.revokeKey(id, a.id, "somebody");
      yield* failsWith("when it is over", notFound, replace(id, a.id, fresh().id));
      yield* same("nothing noted", (yield* notesOf(id)).slice(0, -1), notes);
    }),
  ),

  check(
    "what is taken is told alike: a name before a key, and a key that is named twice",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const key = newKey();
      const known = newChatbot({ keys: [key] });
      yield* registry.create(known, "somebody");
      const { name, workspaceName } = known;
      const taken = new ChatbotTaken({ workspaceName, name });
      yield* failsWith("both", taken, registry.create(known, "somebody"));
      const [a, b] = [newKey(), newKey()];
      const twice = newChatbot({ keys: [a, b, { ...a, name: "again" }] });
      const keyTaken = new KeyTaken({ keyId: a.id });
      yield* failsWith("a key twice", keyTaken, registry.create(twice, "somebody"));
      const all = registry.create({ ...known, keys: twice.keys }, "somebody");
      yield* failsWith("a name and a key twice", taken, all);
      const once = yield* registry.create({ ...twice, keys: [a] }, "somebody");
      yield* same("its keys", (yield* found(once.id))?.keys.length, 1);
    }),
  ),

  check(
    "the use of keys is noted with them, and nowhere else",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const [used, idle, over] = [newKey(), newKey(), newKey()];
      const { id } = yield* registry.create(newChatbot({ keys: [used, idle, over] }), "somebody");
      yield* registry.revokeKey(id, over.id, "somebody");
      const notes = yield* notesOf(id);
      yield* directory.used([over.id, used.id, fresh("key")]);
      const lastUsedAt = (yield* keyOf(id, used.id))?.lastUsedAt;
      yield* same("the one that was used", lastUsedAt instanceof Date, true);
      yield* directory.used([used.id]);
      yield* same("the other", (yield* keyOf(id, idle.id))?.lastUsedAt, null);
      yield* directory.used([]);
      yield* same("how many keys", (yield* found(id))?.keys.length, 3);
      yield* same("the notes", yield* notesOf(id), notes);
      const keys = Array.from({ length: 1_001 }, () => newKey());
      const busy = yield* registry.create(newChatbot({ keys }), "somebody");
      yield* directory.used(keys.map((key) => key.id));
      const unused = (yield* found(busy.id))?.keys.filter((key) => key.lastUsedAt === null);
      yield* same("which of very many were not used", unused, []);
    }),
  ),

  ...registryRaceChecks,
];
