/**
 * The promises of `ChatbotRegistry` and `ChatbotDirectory`, over the same data.
 */
import { Effect, Fiber } from "effect";
import type { ChatArchive } from "../ChatArchive.ts";
import { ChatbotDirectory } from "../ChatbotDirectory.ts";
import { ChatbotRegistry, type ChatbotChange, type KeyChange } from "../ChatbotRegistry.ts";
import type { ChatStore } from "../ChatStore.ts";
import {
  ChatbotNotFound,
  ChatbotTaken,
  ChatNotFound,
  KeyNotFound,
  KeyTaken,
  WorkspaceNotFound,
  WorkspaceTaken,
} from "../Errors.ts";
import type { TurnStore } from "../TurnStore.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import {
  actor,
  append,
  ask,
  atOnce,
  auditOf,
  awkwardTexts,
  create,
  declared,
  entry,
  erase,
  found,
  foundKey,
  fresh,
  history,
  keyOf,
  list,
  newKey,
  pass,
  taken,
} from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

const [sooner, end, later] = [2031, 2032, 2033].map((year) => new Date(Date.UTC(year, 0))) as [
  Date,
  Date,
  Date,
];

const byId = (a: { readonly id: string }, b: { readonly id: string }) => (a.id < b.id ? -1 : 1);

const newOne = (more: Parameters<typeof declared>[0] = {}) =>
  ChatbotRegistry.use((registry) => registry.create(declared(more), actor));

const replacement = (more: { readonly expiresAt?: Date } = {}) => {
  const { hash, id } = newKey();
  return { id, hash, expiresAt: null, ...more };
};

const rename = (from: string, to: string, merge = false, registry?: ChatbotRegistry["Service"]) =>
  ChatbotRegistry.use((first) => (registry ?? first).renameWorkspace(from, to, { merge }, actor));

/** Both at once; in every other round the second begins first. Whether each succeeded. */
const bothAtOnce = <R>(round: number, both: ReadonlyArray<Effect.Effect<unknown, unknown, R>>) => {
  const successes = both.map((one) => Effect.isSuccess(one));
  return round % 2 === 0
    ? Effect.all(successes, { concurrency: 2 })
    : Effect.map(Effect.all(successes.toReversed(), { concurrency: 2 }), (came) =>
        came.toReversed(),
      );
};

export const registryChecks: ReadonlyArray<
  Check<ChatbotRegistry | ChatbotDirectory | ChatStore | TurnStore | ChatArchive | StoreUnderTest>
> = [
  check(
    "a chatbot is kept as declared, and its keys open it",
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
        // A hash may be a view of more bytes, and a key may have ended long ago.
        newKey({ hash: new Uint8Array(64).fill(7).subarray(8, 40), expiresAt: new Date(0) }),
      ];
      const wanted = declared({
        name: `${fresh("chatbot")} ${"😀".repeat(200)}`,
        keys,
        // The longest one: more bytes than code points.
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
      const chatbot = yield* registry.create(wanted, actor);
      const { keys: _, ...rest } = wanted;
      yield* same("the chatbot", chatbot, { id: chatbot.id, ...rest });
      yield* same("a positive id", Number.isSafeInteger(chatbot.id) && chatbot.id > 0, true);
      const listed = yield* found(chatbot.id);
      yield* same("the listed chatbot", listed?.chatbot, chatbot);
      yield* same(
        "its keys",
        listed?.keys.map(({ createdAt: _, ...key }) => key).toSorted(byId),
        keys.map((one) => ({ ...one, revokedAt: null, lastUsedAt: null })).toSorted(byId),
      );
      for (const { expiresAt, hash, id, scopes } of keys) {
        const opened = yield* directory.open(id);
        yield* same("an opened key", opened, { hash, scopes, expiresAt, chatbot });
      }
      yield* same("an unknown key", yield* directory.open(fresh("key")), null);
      yield* same("no key", yield* directory.open(""), null);
      yield* same("the audit", yield* auditOf(chatbot.id), [
        `${actor} create ${wanted.name}`,
        ...keys.map(({ id }) => `${actor} add-key ${id}`),
      ]);
    }),
  ),

  check(
    "texts and times of chatbots, keys and actors are kept as they are",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { id } = yield* newOne();
      const texts = awkwardTexts.filter((text) => text.trim() !== "");
      // Some are in hours that summer time leaves out, or has twice.
      const times = [
        "1970-01-01T00:00:00.001Z",
        "2027-03-14T02:30:00.000Z",
        "2027-03-28T02:30:00.000Z",
        "2027-10-31T01:30:00.000Z",
        "2038-01-19T03:14:08.000Z",
      ];
      const keys = [
        ...texts.map((name) => newKey({ name })),
        ...times.map((time) => newKey({ expiresAt: new Date(time) })),
      ];
      for (const key of keys) yield* registry.addKey(id, key, actor);
      const kept = (yield* found(id))?.keys ?? [];
      yield* same(
        "names and ends",
        kept.toSorted(byId).map(({ expiresAt, name }) => [name, expiresAt]),
        keys.toSorted(byId).map(({ expiresAt, name }) => [name, expiresAt]),
      );
      for (const [n, text] of texts.entries()) {
        const change = { description: text, settings: { model: text, instructions: `${n}` } };
        const changed = yield* registry.change(id, change, text);
        yield* same("the changed chatbot", (yield* found(id))?.chatbot, changed);
        yield* same("its texts", [changed.description, changed.settings.model], [text, text]);
      }
      const lines = yield* registry.audit(texts.length);
      yield* same(
        "the actors, newest first",
        lines.map((line) => line.actor),
        texts.toReversed(),
      );
      yield* same("no line", yield* registry.audit(0), []);
      const [newest] = yield* registry.audit(2 ** 31 - 1);
      yield* same("the newest of all", newest?.actor, texts.at(-1));
    }),
  ),

  check(
    "a name belongs to one chatbot of a workspace, also when several are created at once",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const wanted = declared({ workspaceName: fresh("A") });
      const { name, workspaceName } = wanted;
      const tags = yield* atOnce(3, () =>
        Effect.match(registry.create(wanted, actor), {
          onFailure: ({ _tag }) => _tag,
          onSuccess: () => "created",
        }),
      );
      yield* same("the outcomes", tags.toSorted(), ["ChatbotTaken", "ChatbotTaken", "created"]);
      const elsewhere = yield* newOne({ name, workspaceName: fresh("B") });
      const other = yield* newOne({ workspaceName });
      const isTaken = new ChatbotTaken({ workspaceName, name });
      const renaming = registry.change(other.id, { name, description: "another" }, actor);
      yield* failsWith("its name", isTaken, renaming);
      const moving = registry.change(elsewhere.id, { workspaceName }, actor);
      yield* failsWith("its workspace", isTaken, moving);
      yield* same("the other", (yield* found(other.id))?.chatbot, other);
      yield* same("the one elsewhere", (yield* found(elsewhere.id))?.chatbot, elsewhere);
      yield* same("its audit", yield* auditOf(other.id), [`${actor} create ${other.name}`]);
      const away = { workspaceName: fresh("C"), name };
      const moved = yield* registry.change(other.id, away, actor);
      yield* same("both at once", moved, { ...other, ...away });
    }),
  ),

  check(
    "names are compared code point by code point",
    Effect.fnUntraced(function* () {
      const workspace = fresh("é");
      const made = yield* Effect.forEach(
        [
          ...["Name", "name", "name ", "name 🍣", "name 🍺", "é", "e\u0301"].map(
            (name) => [workspace, name] as const,
          ),
          ...[`${workspace} `, workspace.toUpperCase(), workspace.normalize("NFD")].map(
            (workspaceName) => [workspaceName, "name"] as const,
          ),
          // Joined by any separator, these are alike.
          ...["/", ":", "\n", "\uffff", '","'].flatMap((between) => [
            [workspace, `n${between}ame`] as const,
            [`${workspace}${between}n`, "ame"] as const,
          ]),
        ],
        ([workspaceName, name]) => newOne({ workspaceName, name }),
      );
      const to = fresh("to");
      yield* rename(workspace, to);
      for (const { id, workspaceName } of made) {
        const now = (yield* found(id))?.chatbot.workspaceName;
        yield* same("its workspace", now, workspaceName === workspace ? to : workspaceName);
      }
    }),
  ),

  check(
    "a change changes the named fields for every reader, and is noted if it changes any",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const { second } = yield* StoreUnderTest;
      const key = newKey();
      let chatbot = yield* newOne({ keys: [key] });
      const { id, name } = chatbot;
      const settings = {
        helloMessage: null,
        instructions: "Be kind",
        moderationErrorMessage: "No",
      };
      const changes: ReadonlyArray<readonly [ChatbotChange, ChatbotRegistry["Service"]]> = [
        [{ description: "another", settings }, registry],
        [{ description: "another", settings }, second.registry],
        [{}, registry],
        [{ name: fresh("chatbot"), workspaceName: fresh("W") }, registry],
        [{ name: fresh("chatbot"), settings: { model: "m" } }, second.registry],
        [{ settings: { helloMessage: "" } }, registry],
      ];
      for (const [n, [change, instance]] of changes.entries()) {
        const changed = yield* instance.change(id, change, `actor ${n}`);
        chatbot = { ...chatbot, ...change, settings: { ...chatbot.settings, ...change.settings } };
        yield* same("the chatbot", changed, chatbot);
        yield* same("the listed chatbot", (yield* found(id))?.chatbot, chatbot);
        yield* same("the opened chatbot", (yield* directory.open(key.id))?.chatbot, chatbot);
      }
      yield* same("the audit", yield* auditOf(id), [
        `${actor} create ${name}`,
        `${actor} add-key ${key.id}`,
        "actor 0 change description, helloMessage, instructions, moderationErrorMessage",
        "actor 3 change name, workspaceName",
        "actor 4 change model, name",
        "actor 5 change helloMessage",
      ]);
      const unknown = id + 1_000_000;
      const missing = registry.change(unknown, { name: "n" }, actor);
      yield* failsWith("no chatbot", new ChatbotNotFound({ chatbot: unknown }), missing);
    }),
  ),

  check(
    "a key is added, changed and revoked for ever",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const { second } = yield* StoreUnderTest;
      const [key, kept, last] = [fresh("b"), fresh("c"), fresh("a")].map((id) => newKey({ id }));
      const { id } = yield* newOne({ keys: [kept!] });
      const other = yield* newOne();
      yield* pass(10);
      yield* registry.addKey(id, key!, actor);
      yield* pass(10);
      yield* same("not there yet", yield* directory.open(last!.id), null);
      yield* second.registry.addKey(id, last!, actor);
      yield* same("there now", (yield* directory.open(last!.id))?.chatbot.id, id);
      const listed = (yield* found(id))?.keys.map((one) => one.id);
      yield* same("the keys, oldest first", listed, [kept!.id, key!.id, last!.id]);
      const { createdAt } = (yield* foundKey(id, key!.id))!;

      const scopes = ["write"] as const;
      const changes: ReadonlyArray<KeyChange> = [
        { scopes, expiresAt: end },
        { scopes },
        { name: "named" },
        { expiresAt: null, name: null },
      ];
      let expected = { ...key!, createdAt, revokedAt: null as Date | null, lastUsedAt: null };
      for (const change of changes) {
        yield* registry.changeKey(id, key!.id, change, "another");
        expected = { ...expected, ...change };
        yield* same("the changed key", yield* foundKey(id, key!.id), expected);
      }
      const opened = yield* directory.open(key!.id);
      yield* same("the opened key", [opened?.scopes, opened?.expiresAt], [scopes, null]);

      const change = (chatbot: number) =>
        registry.changeKey(chatbot, key!.id, { name: "x" }, actor);
      const notFound = new KeyNotFound({ keyId: key!.id });
      const unknown = id + 1_000_000;
      for (const chatbot of [other.id, unknown]) {
        yield* failsWith("another's change", notFound, change(chatbot));
        const revocation = registry.revokeKey(chatbot, key!.id, actor);
        yield* failsWith("another's revocation", notFound, revocation);
      }
      yield* second.registry.revokeKey(id, key!.id, "another");
      yield* failsWith("a second revocation", notFound, registry.revokeKey(id, key!.id, actor));
      yield* failsWith("a late change", notFound, change(id));
      const isTaken = new KeyTaken({ keyId: key!.id });
      yield* failsWith("an addition", isTaken, registry.addKey(id, key!, actor));
      yield* failsWith("another's addition", isTaken, registry.addKey(other.id, key!, actor));
      yield* same("the revoked key", yield* directory.open(key!.id), null);
      const revoked = yield* foundKey(id, key!.id);
      yield* same("its time", revoked?.revokedAt instanceof Date, true);
      yield* same("the rest", { ...revoked, revokedAt: null }, expected);
      yield* same("the other key", (yield* directory.open(kept!.id)) === null, false);
      yield* same("the audit", (yield* auditOf(id)).slice(2), [
        `${actor} add-key ${key!.id}`,
        `${actor} add-key ${last!.id}`,
        `another change-key ${key!.id}: expiresAt, scopes`,
        `another change-key ${key!.id}: name`,
        `another change-key ${key!.id}: expiresAt, name`,
        `another revoke-key ${key!.id}`,
      ]);
      const missing = registry.addKey(unknown, kept!, actor);
      yield* failsWith("no chatbot", new ChatbotNotFound({ chatbot: unknown }), missing);
    }),
  ),

  check(
    "a replacement has the key's name and scopes, and the key ends no later than before",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const keys = [later, null, sooner, end, new Date(0)].map((expiresAt) =>
        newKey({ name: "named", scopes: ["ask"], expiresAt }),
      );
      const { id } = yield* newOne({ keys });
      const other = yield* newOne();
      yield* directory.used([keys[0]!.id]);
      const before = yield* auditOf(id);
      const lines: Array<string> = [];
      for (const [n, { expiresAt, id: keyId }] of keys.entries()) {
        const by = replacement({ expiresAt: later });
        const replaced = yield* registry.replaceKey(id, keyId, by, end, actor);
        const isEarlier = expiresAt !== null && expiresAt <= end;
        const wanted = isEarlier ? expiresAt : end;
        const old = { name: "named", scopes: ["ask"], expiresAt: wanted };
        yield* same("the replaced key", replaced, old);
        yield* same("the opened key", (yield* directory.open(keyId))?.expiresAt, wanted);
        const listed = yield* foundKey(id, keyId);
        yield* same("the listed key", listed?.expiresAt, wanted);
        yield* same("it was used", listed?.lastUsedAt !== null, n === 0);
        const made = yield* foundKey(id, by.id);
        yield* same(
          "the replacement",
          [made?.name, made?.scopes, made?.hash, made?.expiresAt, made?.lastUsedAt],
          ["named", ["ask"], by.hash, later, null],
        );
        lines.push(`${actor} add-key ${by.id}`);
        if (!isEarlier) lines.push(`${actor} change-key ${keyId}: expiresAt`);
      }
      yield* same("the audit", (yield* auditOf(id)).slice(before.length), lines);
      const replace = (chatbot: number, keyId: string, by = replacement().id) =>
        registry.replaceKey(chatbot, keyId, { ...replacement(), id: by }, end, actor);
      const [key, known] = [keys[0]!.id, keys[1]!.id];
      const notFound = new KeyNotFound({ keyId: key });
      yield* failsWith("by a known key", new KeyTaken({ keyId: known }), replace(id, key, known));
      yield* failsWith("another's key", notFound, replace(other.id, key, known));
      yield* registry.revokeKey(id, key, actor);
      yield* failsWith("a revoked key", notFound, replace(id, key));
      const after = (yield* auditOf(id)).slice(before.length + lines.length);
      yield* same("the audit afterwards", after, [`${actor} revoke-key ${key}`]);
    }),
  ),

  check(
    "a creation fails for its name before it fails for a key, and writes all keys or nothing",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const known = declared({ keys: [newKey()] });
      yield* registry.create(known, actor);
      const { keys, name, workspaceName } = known;
      const nameTaken = new ChatbotTaken({ workspaceName, name });
      yield* failsWith("both", nameTaken, registry.create(known, actor));
      const many = Array.from({ length: 120 }, () => newKey());
      for (const [what, taken] of [
        ["a known key", keys[0]!],
        ["a key twice", { ...many[0]!, name: "again" }],
      ] as const) {
        const wanted = declared({ keys: [...many, taken] });
        const keyTaken = new KeyTaken({ keyId: taken.id });
        yield* failsWith(what, keyTaken, registry.create(wanted, actor));
        const both = registry.create({ ...wanted, name, workspaceName }, actor);
        yield* failsWith(`a name and ${what}`, nameTaken, both);
      }
      for (let steps = 0; steps < 6; steps++) {
        const wanted = declared({ keys: many.map((key) => ({ ...key, id: fresh("key") })) });
        const creating = yield* Effect.forkChild(registry.create(wanted, actor));
        for (let step = 0; step < steps; step++) yield* Effect.yieldNow;
        yield* Fiber.interrupt(creating);
        const made = (yield* registry.list).find(({ chatbot }) => chatbot.name === wanted.name);
        yield* same("an interrupted creation", [0, 120].includes(made?.keys.length ?? 0), true);
      }
      const one = yield* newOne({ keys: many });
      yield* same("its keys", (yield* found(one.id))?.keys.length, 120);
    }),
  ),

  check(
    "the use of keys is noted with them, and nowhere else",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const keys = Array.from({ length: 1_003 }, () => newKey());
      const [idle, over, ...used] = keys;
      const { id } = yield* newOne({ keys });
      yield* registry.revokeKey(id, over!.id, actor);
      const before = yield* auditOf(id);
      yield* directory.used([]);
      yield* directory.used([over!.id, fresh("key"), ...used.map((key) => key.id)]);
      yield* same(
        "one that was used",
        (yield* foundKey(id, used[0]!.id))?.lastUsedAt instanceof Date,
        true,
      );
      const unused = (yield* found(id))?.keys.filter(({ lastUsedAt }) => lastUsedAt === null);
      const ids = unused?.map((key) => key.id).filter((key) => key !== over!.id);
      yield* same("the keys that were not used", ids, [idle!.id]);
      yield* same("how many keys", (yield* found(id))?.keys.length, keys.length);
      yield* same("the audit", yield* auditOf(id), before);
    }),
  ),

  check(
    "changes of different fields at once all count, and each is noted once",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { second } = yield* StoreUnderTest;
      const both = [registry, second.registry];
      const key = newKey();
      const { id, settings } = yield* newOne({ keys: [key] });
      const wanted = { helloMessage: "Hi", instructions: "Be kind", model: "m", retentionDays: 7 };
      const keyChanges: ReadonlyArray<KeyChange> = [
        { name: "named" },
        { scopes: ["write"] },
        { expiresAt: end },
      ];
      const writes = [
        ...Object.entries(wanted).map(([field, value]) => ({ settings: { [field]: value } })),
        ...Array.from({ length: 12 }, (_, n) => ({ description: `description ${n}` })),
      ].map(
        (change, n) => both[n % 2]!.change(id, change, actor) as Effect.Effect<unknown, unknown>,
      );
      const keyWrites = keyChanges.map((change, n) =>
        both[n % 2]!.changeKey(id, key.id, change, actor),
      );
      yield* Effect.all([...writes, ...keyWrites], { concurrency: "unbounded" });
      const { chatbot } = (yield* found(id))!;
      yield* same("the settings", chatbot.settings, { ...settings, ...wanted });
      const { createdAt: _, ...changed } = (yield* foundKey(id, key.id))!;
      yield* same("the key", changed, {
        ...key,
        ...Object.assign({}, ...keyChanges),
        revokedAt: null,
        lastUsedAt: null,
      });
      const lines = (yield* auditOf(id)).slice(2);
      yield* same(
        "the audit",
        lines.toSorted(),
        [
          ...Object.keys(wanted).map((field) => `${actor} change ${field}`),
          ...Array.from({ length: 12 }, () => `${actor} change description`),
          ...["expiresAt", "name", "scopes"].map(
            (field) => `${actor} change-key ${key.id}: ${field}`,
          ),
        ].toSorted(),
      );
    }),
  ),

  check(
    "a revocation, a replacement, a use and an addition at once leave one order",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const { second } = yield* StoreUnderTest;
      const [{ id }, other] = [yield* newOne(), yield* newOne()];
      for (let round = 0; round < 4; round++) {
        const [old, by] = [newKey(), replacement()];
        yield* registry.addKey(id, old, actor);
        yield* bothAtOnce(round, [
          registry.replaceKey(id, old.id, by, end, actor),
          second.registry.revokeKey(id, old.id, actor),
        ]);
        const lines = yield* auditOf(id);
        const revoked = lines.indexOf(`${actor} revoke-key ${old.id}`);
        const added = lines.indexOf(`${actor} add-key ${by.id}`);
        yield* same("it is revoked", revoked >= 0, true);
        yield* same("it is replaced afterwards", added > revoked, false);
        const isThere = (yield* foundKey(id, by.id)) !== undefined;
        yield* same("the replacement is there", isThere, added >= 0);

        const shared = newKey();
        const isAdded = yield* bothAtOnce(round, [
          registry.addKey(id, shared, actor),
          second.registry.addKey(other.id, shared, actor),
        ]);
        yield* same("one addition", isAdded.toSorted(), [false, true]);
        const opens = (yield* directory.open(shared.id))?.chatbot.id;
        yield* same("the key opens", opens, isAdded[0] ? id : other.id);

        const twice = newKey();
        yield* registry.addKey(id, twice, actor);
        yield* bothAtOnce(round, [
          registry.replaceKey(id, twice.id, replacement(), sooner, actor),
          second.registry.replaceKey(id, twice.id, replacement(), end, actor),
        ]);
        yield* same("the earlier end", (yield* foundKey(id, twice.id))?.expiresAt, sooner);
        yield* bothAtOnce(round, [
          directory.used([twice.id]),
          second.registry.revokeKey(id, twice.id, actor),
        ]);
        yield* same("a revoked key", yield* directory.open(twice.id), null);
      }
    }),
  ),

  check(
    "a workspace moves whole to a new name, and to an existing one only as a merge",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const [from, into, to] = [fresh("from"), fresh("into"), fresh("to")];
      const moving = yield* Effect.forEach(["a", "b", "c"], (name) =>
        newOne({ workspaceName: from, name }),
      );
      const inTheWay = yield* newOne({ workspaceName: into, name: "c" });
      const areIn = Effect.fnUntraced(function* (workspaceName: string) {
        for (const { id } of moving) {
          yield* same("its workspace", (yield* found(id))?.chatbot.workspaceName, workspaceName);
        }
      });
      const workspaceTaken = new WorkspaceTaken({ workspaceName: into });
      yield* failsWith("an existing workspace", workspaceTaken, rename(from, into));
      const nameTaken = new ChatbotTaken({ workspaceName: into, name: "c" });
      yield* failsWith("a merge of one name", nameTaken, rename(from, into, true));
      const unknown = new WorkspaceNotFound({ workspaceName: to });
      yield* failsWith("no workspace", unknown, rename(to, from));
      yield* rename(from, from);
      yield* areIn(from);
      yield* registry.change(inTheWay.id, { name: "d" }, actor);
      yield* rename(from, into, true);
      yield* areIn(into);
      yield* rename(into, to);
      yield* areIn(to);
      for (const { id, name } of moving) {
        yield* same("the audit", yield* auditOf(id), [
          `${actor} create ${name}`,
          `${actor} change workspaceName`,
          `${actor} change workspaceName`,
        ]);
      }
      yield* failsWith(
        "the old name",
        new WorkspaceNotFound({ workspaceName: into }),
        rename(into, from),
      );
    }),
  ),

  check(
    "renames at once, of 100 chatbots that are changed meanwhile, move workspaces whole or not at all",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { second } = yield* StoreUnderTest;
      for (let round = 0; round < 4; round++) {
        const [a, b, to, name] = [fresh("a"), fresh("b"), fresh("to"), fresh("chatbot")];
        const workspaces = yield* Effect.forEach([a, b], (workspaceName) =>
          Effect.forEach(
            [name, ...Array.from({ length: 49 }, () => fresh("chatbot"))],
            (one) => newOne({ workspaceName, name: one }),
            { concurrency: 10 },
          ),
        );
        const changed = workspaces[0]![1]!.id;
        const [described, set, ...done] = yield* Effect.all(
          [
            second.registry.change(changed, { description: "another" }, actor),
            registry.change(changed, { settings: { model: "m" } }, actor),
            rename(a, to, true),
            rename(b, to, true, second.registry),
          ].map((one) => Effect.isSuccess(one as Effect.Effect<unknown, unknown, ChatbotRegistry>)),
          { concurrency: "unbounded" },
        );
        yield* same("both changes", [described, set], [true, true]);
        yield* same("one rename", done.toSorted(), [false, true]);
        for (const [n, chatbots] of workspaces.entries()) {
          const all = yield* registry.list;
          const names = chatbots.map(
            ({ id }) => all.find(({ chatbot }) => chatbot.id === id)?.chatbot.workspaceName,
          );
          yield* same("its workspaces", [...new Set(names)], [done[n] ? to : [a, b][n]]);
        }
        const { description, settings } = (yield* found(changed))!.chatbot;
        yield* same("the changes", [description, settings.model], ["another", "m"]);

        // Of two renames that meet, one comes after the other.
        const [here, there] = [fresh("here"), fresh("there")];
        const meeting = yield* Effect.forEach([here, there], (workspaceName) =>
          newOne({ workspaceName }),
        );
        const met = yield* bothAtOnce(round, [
          rename(here, there, true),
          rename(there, here, true, second.registry),
        ]);
        yield* same("both renames", met, [true, true]);
        const now = yield* Effect.forEach(meeting, ({ id }) =>
          Effect.map(found(id), (one) => one?.chatbot.workspaceName),
        );
        yield* same("one workspace", now[0], now[1]);
      }
    }),
  ),

  check(
    "a deleted chatbot is gone with its keys and chats, and its lines of the audit stay",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const { second } = yield* StoreUnderTest;
      const key = newKey();
      const { id, name, workspaceName } = yield* newOne({ keys: [key], workspaceName: fresh("W") });
      const kept = yield* newOne({ workspaceName });
      yield* create(kept.id);
      const chat = yield* create(id, { name: "chat", helloMessage: "Hello" });
      yield* ask(id, chat.id, entry("q"));
      yield* append(yield* taken(id, null, keyOf("key")), entry("q"));
      const turn = yield* taken(id, chat.id);
      yield* second.registry.delete(id, "ann");
      yield* same("the chatbot", yield* found(id), undefined);
      yield* same("its key", yield* directory.open(key.id), null);
      const chatGone = new ChatNotFound({ chatId: chat.id });
      for (const query of [{}, { search: "chat" }, { id: chat.id }]) {
        yield* same("its chats", yield* list(id, query), { items: [], total: 0 });
      }
      yield* failsWith("its history", chatGone, history(id, chat.id));
      yield* failsWith("an ask in flight", chatGone, append(turn, entry("late")));
      const notFound = new ChatbotNotFound({ chatbot: id });
      yield* failsWith("a new chat", notFound, create(id));
      yield* failsWith("a known key", notFound, taken(id, null, keyOf("key")));
      yield* failsWith("an erasure", notFound, erase(id, { _tag: "All" }));
      yield* failsWith("a change", notFound, registry.change(id, { name: "n" }, actor));
      yield* failsWith("a second deletion", notFound, registry.delete(id, actor));
      yield* same("the audit", yield* auditOf(id), [
        `${actor} create ${name}`,
        `${actor} add-key ${key.id}`,
        `ann delete ${name}`,
      ]);
      const again = yield* newOne({ name, workspaceName });
      yield* same("a new id", again.id === id, false);
      yield* same("no chats", yield* list(again.id), { items: [], total: 0 });
      yield* same("the other's chat", (yield* list(kept.id)).total, 1);
    }),
  ),
];
