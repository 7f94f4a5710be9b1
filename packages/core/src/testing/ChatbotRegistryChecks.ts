/**
 * What `ChatbotRegistry` and `ChatbotDirectory` promise, over the same data.
 */
import { Effect } from "effect";
import { defaultSettings } from "../Chatbot.ts";
import { ChatbotDirectory } from "../ChatbotDirectory.ts";
import {
  ChatbotRegistry,
  type KeyChange,
  type KeyRecord,
  type NewChatbot,
} from "../ChatbotRegistry.ts";
import { ChatbotNotFound, ChatbotTaken, KeyNotFound, KeyTaken } from "../Errors.ts";
import { check, failsWith, same, type Check } from "./Check.ts";
import { pass } from "./Fixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

let names = 0;
/** A name that was not used before in this run; keys take their ids from it. */
const fresh = (kind: string) => `${kind} ${Date.now()} ${++names}`;

const newKey = (more: Partial<KeyRecord> = {}): KeyRecord => ({
  id: fresh("key"),
  hash: Uint8Array.from({ length: 32 }, (_, n) => (n * 7) % 256),
  name: null,
  scopes: ["read", "ask"],
  expiresAt: null,
  ...more,
});

const newChatbot = (more: Partial<NewChatbot> = {}): NewChatbot => ({
  workspaceName: "Workspace",
  name: fresh("chatbot"),
  description: "Description — '; 😀",
  settings: { ...defaultSettings, helloMessage: "Hello" },
  keys: [],
  ...more,
});

const byId = (a: KeyRecord, b: KeyRecord) => (a.id < b.id ? -1 : 1);

const found = (id: number) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.list, (all) => all.find(({ chatbot }) => chatbot.id === id)),
  );

const keyOf = (chatbot: number, keyId: string) =>
  Effect.map(found(chatbot), (one) => one?.keys.find(({ id }) => id === keyId));

/** The newest lines of a chatbot's audit, oldest first. */
const notesOf = (chatbot: number) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.audit(1000), (lines) =>
      lines
        .filter((line) => line.chatbot === chatbot)
        .map(({ action, actor, detail }) => `${actor} ${action} ${detail}`)
        .toReversed(),
    ),
  );

/** Both at once, and what came of each; in every other round the second begins first. */
const inTurn = <A>(round: number, both: ReadonlyArray<Effect.Effect<A>>) =>
  round % 2 === 0
    ? Effect.all(both, { concurrency: 2 })
    : Effect.map(Effect.all(both.toReversed(), { concurrency: 2 }), (came) => came.toReversed());

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
        // As long as one may be, and more bytes than that.
        description: "é".repeat(100_000),
        settings: {
          helloMessage: "Hello",
          moderationErrorMessage: "No",
          instructions: 'Be "brief"\n',
          model: "a model",
          moderation: "words",
          knowledge: "folder",
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
        [`${workspace} `, "name"],
        [workspace.toUpperCase(), "name"],
        [workspace.normalize("NFD"), "name"],
        // Written one after the other, with whatever between them, they are alike.
        ...["", " ", "/", ":", "|", ".", "-", "\t", '","'].flatMap((between) => [
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
    "changes of different fields that come together all count",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { id, settings } = yield* registry.create(newChatbot(), "somebody");
      const wanted = { helloMessage: "Hi", instructions: "Be kind", model: "m", retentionDays: 7 };
      yield* Effect.forEach(
        Object.entries(wanted),
        ([field, value]) => registry.change(id, { settings: { [field]: value } }, "somebody"),
        { concurrency: "unbounded" },
      );
      yield* same("the settings", (yield* found(id))?.chatbot.settings, { ...settings, ...wanted });
      const { second } = yield* StoreUnderTest;
      const key = newKey();
      yield* registry.addKey(id, key, "somebody");
      const changes: ReadonlyArray<KeyChange> = [
        { name: "named" },
        { scopes: ["write"] },
        { expiresAt: new Date("2032-01-01T00:00:00.000Z") },
      ];
      yield* Effect.forEach(
        changes,
        (change, n) =>
          (n % 2 === 0 ? registry : second.registry).changeKey(id, key.id, change, "somebody"),
        { concurrency: "unbounded" },
      );
      const { createdAt: _, ...changed } = (yield* keyOf(id, key.id))!;
      const after = { ...key, revokedAt: null, lastUsedAt: null };
      yield* same("the key", changed, Object.assign(after, ...changes));
    }),
  ),

  check(
    "workspaces that are renamed while others are, and while their chatbots are changed, move whole or not at all",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { second } = yield* StoreUnderTest;
      for (let round = 0; round < 3; round++) {
        const [a, b, to, name] = [fresh("a"), fresh("b"), fresh("to"), fresh("chatbot")];
        const [ofA, ofB] = yield* Effect.forEach([a, b], (workspaceName) =>
          Effect.forEach(
            [newChatbot({ name, workspaceName }), newChatbot({ workspaceName })],
            (one) => registry.create(one, "somebody"),
          ),
        );
        const renames = [
          registry.renameWorkspace(a, to, "somebody"),
          second.registry.renameWorkspace(b, to, "somebody"),
        ];
        const changed = ofA![1]!.id;
        const [, , came] = yield* Effect.all(
          [
            second.registry.change(changed, { description: "another" }, "somebody"),
            registry.change(changed, { settings: { model: "m" } }, "somebody"),
            Effect.forEach(renames, Effect.result, { concurrency: 2 }),
          ],
          { concurrency: "unbounded" },
        );
        const tags = came.map((one) => (one._tag === "Success" ? to : one.failure._tag));
        yield* same("what came of it", tags.toSorted(), ["ChatbotTaken", to].toSorted());
        for (const [n, chatbots] of [ofA!, ofB!].entries()) {
          for (const { id, workspaceName } of chatbots) {
            const now = (yield* found(id))?.chatbot.workspaceName;
            yield* same("its workspace", now, tags[n] === to ? to : workspaceName);
          }
        }
        const { description, settings } = (yield* found(changed))!.chatbot;
        yield* same("what was changed", [description, settings.model], ["another", "m"]);

        // Or a chatbot is made where they are to go.
        const [from, into] = [fresh("from"), fresh("into")];
        const moving = yield* Effect.forEach([0, 1], () =>
          registry.create(newChatbot({ workspaceName: from }), "somebody"),
        );
        const taking = newChatbot({ workspaceName: into, name: moving[1]!.name });
        const [made, moved] = yield* inTurn(round, [
          Effect.isSuccess(second.registry.create(taking, "somebody")),
          Effect.isSuccess(registry.renameWorkspace(from, into, "somebody")),
        ]);
        yield* same("whether one of both is done", made, !moved);
        for (const { id } of moving) {
          const now = (yield* found(id))?.chatbot.workspaceName;
          yield* same("its workspace", now, moved ? into : from);
        }
      }
    }),
  ),

  check(
    "of two renames that meet one comes after the other, and no change is lost between them",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { second } = yield* StoreUnderTest;
      for (let round = 0; round < 10; round++) {
        const [here, there] = [fresh("here"), fresh("there")];
        const meeting = yield* Effect.forEach([here, there], (workspaceName) =>
          registry.create(newChatbot({ workspaceName }), "somebody"),
        );
        const done = yield* inTurn(round, [
          Effect.isSuccess(registry.renameWorkspace(here, there, "somebody")),
          Effect.isSuccess(second.registry.renameWorkspace(there, here, "somebody")),
        ]);
        yield* same("whether both are done", done, [true, true]);
        const [one, other] = yield* Effect.forEach(meeting, ({ id }) => found(id));
        const { workspaceName } = one!.chatbot;
        yield* same("where both are", other?.chatbot.workspaceName, workspaceName);

        // Two chatbots take names of each other where all are to go.
        const [full, next] = [fresh("full"), fresh("next")];
        const all = yield* Effect.forEach(["a", "b", "c"], (name) =>
          registry.create(newChatbot({ workspaceName: full, name }), "somebody"),
        );
        const move = (at: number, name: string) =>
          second.registry.change(all[at]!.id, { workspaceName: next, name }, "somebody");
        const outcomes = yield* Effect.all(
          [
            Effect.result(registry.renameWorkspace(full, next, "somebody")),
            Effect.result(move(2, "a")),
            Effect.result(move(0, "c")),
          ],
          { concurrency: "unbounded" },
        );
        for (const one of outcomes) {
          if (one._tag === "Failure") yield* same("a refusal", one.failure._tag, "ChatbotTaken");
        }
      }
    }),
  ),

  check(
    "a key is added, changed and, for ever, revoked",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const [key, kept] = [newKey(), newKey()];
      const { id } = yield* registry.create(newChatbot({ keys: [kept] }), "somebody");
      const other = yield* registry.create(newChatbot(), "somebody");
      yield* registry.addKey(id, key, "somebody");
      yield* same("what it opens", (yield* directory.open(key.id))?.chatbot.id, id);
      const added = yield* keyOf(id, key.id);
      const { second } = yield* StoreUnderTest;
      const [later, over] = [newKey(), newKey({ expiresAt: new Date(0) })];
      yield* same("what is not there yet", yield* directory.open(later.id), null);
      yield* second.registry.addKey(id, later, "somebody");
      yield* same("what is there now", (yield* directory.open(later.id))?.chatbot.id, id);
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
    "what is written counts, whatever another instance wrote in between or writes at the same time",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { second } = yield* StoreUnderTest;
      const { id } = yield* registry.create(newChatbot(), "somebody");
      for (const [by, description] of [
        [registry, "A"],
        [second.registry, "B"],
        [registry, "A"],
      ] as const) {
        yield* by.change(id, { description }, "somebody");
        yield* same("as it is listed", (yield* found(id))?.chatbot.description, description);
      }
      for (let round = 0; round < 4; round++) {
        const [old, by] = [newKey(), newKey()];
        yield* registry.addKey(id, old, "somebody");
        const end = new Date("2032-01-01T00:00:00.000Z");
        yield* inTurn(round, [
          Effect.isSuccess(registry.replaceKey(id, old.id, { ...by, expiresAt: null }, end, "x")),
          Effect.isSuccess(second.registry.revokeKey(id, old.id, "x")),
        ]);
        const notes = yield* notesOf(id);
        const [revoked, added] = [`x revoke-key ${old.id}`, `x add-key ${by.id}`].map((note) =>
          notes.indexOf(note),
        );
        yield* same("whether it is revoked", revoked! >= 0, true);
        yield* same("whether it is replaced afterwards", added! > revoked!, false);
        const isThere = (yield* keyOf(id, by.id)) !== undefined;
        yield* same("whether the replacement is there", isThere, added! >= 0);
      }
    }),
  ),

  check(
    "changes of two instances that meet are all made and noted once, and none after a revocation",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { second } = yield* StoreUnderTest;
      const keys = [newKey(), newKey(), newKey()];
      const { id } = yield* registry.create(newChatbot({ keys }), "somebody");
      const made = yield* Effect.forEach(
        Array.from({ length: 120 }, (_, n) => n),
        (n) => {
          const { changeKey, change, replaceKey, revokeKey } =
            n % 2 === 0 ? registry : second.registry;
          const keyId = keys[n % 3]!.id;
          const name = `value ${n}`;
          // Each of the kinds below comes to each of the keys, from each of the instances.
          const kind = Math.floor(n / 6) % 10;
          const one: Effect.Effect<readonly [string, number], unknown> =
            kind < 5
              ? Effect.as(changeKey(id, keyId, { name }, "racer"), [`change-key ${keyId}: name`, 1])
              : kind < 8
                ? Effect.as(change(id, { settings: { model: name } }, "racer"), ["change model", 1])
                : kind === 8 || n < 60
                  ? Effect.as(
                      replaceKey(
                        id,
                        keyId,
                        { ...newKey(), expiresAt: null },
                        new Date("2040-01-01"),
                        "racer",
                      ),
                      ["add-key", 1],
                    )
                  : Effect.as(revokeKey(id, keyId, "racer"), [`revoke-key ${keyId}`, 1]);
          return Effect.result(one);
        },
        { concurrency: "unbounded" },
      );
      const counts = new Map<string, number>();
      for (const one of made) {
        if (one._tag === "Failure") {
          yield* same("a refusal", one.failure instanceof KeyNotFound ? null : one.failure, null);
          continue;
        }
        counts.set(one.success[0], (counts.get(one.success[0]) ?? 0) + one.success[1]);
      }
      const notes = (yield* notesOf(id)).slice(1 + keys.length).map((note) => note.slice(6));
      for (const [what, times] of counts) {
        const noted = notes.filter((note) => note.startsWith(what)).length;
        yield* same(`lines of "${what}", which succeeded ${times} times`, noted, times);
      }
      for (const { id: keyId } of keys) {
        const about = notes.filter((note) => note.includes(keyId));
        const end = about.indexOf(`revoke-key ${keyId}`);
        yield* same("what came after a revocation", end < 0 ? [] : about.slice(end + 1), []);
        const isRevoked = (yield* keyOf(id, keyId))?.revokedAt !== null;
        yield* same("whether it was revoked", isRevoked, end >= 0);
      }
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
];
