/**
 * What `ChatbotRegistry` and `ChatbotDirectory` promise, over the same data.
 */
import { Effect } from "effect";
import { ChatbotDirectory } from "../ChatbotDirectory.ts";
import { ChatbotRegistry, type ChatbotDeclaration, type KeyRecord } from "../ChatbotRegistry.ts";
import { check, failsWith, same, type Check } from "./Check.ts";

let names = 0;
/** A name that was not used before in this run; keys take their ids from it. */
const fresh = (kind: string) => `${kind} ${Date.now()} ${++names}`;

const key = (more: Partial<KeyRecord> = {}): KeyRecord => ({
  id: fresh("key"),
  hash: Uint8Array.from({ length: 32 }, (_, n) => (n * 7) % 256),
  name: null,
  scopes: ["read", "ask"],
  expiresAt: null,
  ...more,
});

const declaration = (more: Partial<ChatbotDeclaration> = {}): ChatbotDeclaration => ({
  workspaceName: "Workspace",
  name: fresh("chatbot"),
  description: "Description — '; 😀",
  settings: { helloMessage: "Hello", moderationErrorMessage: "No", instructions: null },
  keys: [],
  ...more,
});

const byId = (a: KeyRecord, b: KeyRecord) => (a.id < b.id ? -1 : 1);

const found = (id: number) =>
  ChatbotRegistry.use((registry) =>
    Effect.map(registry.list, (all) => all.find(({ chatbot }) => chatbot.id === id)),
  );

export const chatbotRegistryChecks: ReadonlyArray<Check<ChatbotRegistry | ChatbotDirectory>> = [
  check(
    "a chatbot is what was declared, and its keys open it",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const keys = [
        key(),
        key({ name: "named", scopes: [], expiresAt: new Date("2030-01-02T03:04:05.678Z") }),
      ];
      const declared = declaration({ keys });
      const chatbot = yield* registry.save(declared, "somebody");
      const { keys: _, ...rest } = declared;
      yield* same("the chatbot", chatbot, { id: chatbot.id, ...rest });
      const listed = yield* found(chatbot.id);
      yield* same("as it is listed", listed?.chatbot, chatbot);
      yield* same(
        "its keys",
        listed?.keys.toSorted(byId),
        keys.map((one) => ({ ...one, revokedAt: null })).toSorted(byId),
      );
      for (const { expiresAt, hash, id, scopes } of keys) {
        const opened = yield* directory.open(id);
        yield* same("what the key opens", opened, { hash, scopes, expiresAt, chatbot });
      }
      yield* same("an unknown key", yield* directory.open(fresh("key")), null);
      yield* same("no key", yield* directory.open(""), null);
    }),
  ),

  check(
    "saving the same again changes nothing and is not noted",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const declared = declaration({ keys: [key()] });
      const first = yield* registry.save(declared, "somebody");
      yield* same("the first note", (yield* registry.audit(1))[0]?.chatbot, first.id);
      const before = (yield* registry.audit(1000)).length;
      yield* same("again", yield* registry.save(declared, "somebody"), first);
      yield* same("the notes", (yield* registry.audit(1000)).length, before);
      const changed = { ...declared, description: "another", keys: [key()] };
      const second = yield* registry.save(changed, "somebody else");
      yield* same("the same chatbot", second.id, first.id);
      const [note] = yield* registry.audit(1);
      yield* same(
        "the note",
        [note?.actor, note?.action, note?.chatbot],
        ["somebody else", "change", first.id],
      );
      yield* same("both keys", (yield* found(first.id))?.keys.length, 2);
    }),
  ),

  check(
    "a revoked key opens nothing, for ever",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const [gone, kept] = [key(), key()];
      const declared = declaration({ keys: [gone, kept] });
      const { id } = yield* registry.save(declared, "somebody");
      const other = yield* registry.save(declaration(), "somebody");
      yield* same("another's", yield* registry.revoke(other.id, gone.id, "somebody"), false);
      yield* same("ours", yield* registry.revoke(id, gone.id, "somebody"), true);
      yield* same("again", yield* registry.revoke(id, gone.id, "somebody"), false);
      yield* registry.save(declared, "somebody");
      yield* same("the revoked key", yield* directory.open(gone.id), null);
      yield* same("the other", (yield* directory.open(kept.id)) === null, false);
      const [note] = yield* registry.audit(1);
      yield* same("the note", [note?.action, note?.chatbot], ["revoke", id]);
    }),
  ),

  check(
    "a key of another chatbot is refused, and nothing is written",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const theirs = key();
      const owner = yield* registry.save(declaration({ keys: [theirs] }), "somebody");
      const before = (yield* registry.audit(1000)).length;
      const ours = declaration({ keys: [key(), theirs] });
      yield* failsWith("a new chatbot", "KeyTaken", registry.save(ours, "somebody"));
      const known = yield* registry.save({ ...ours, keys: [] }, "somebody");
      const changed = { ...ours, description: "changed" };
      yield* failsWith("a known one", "KeyTaken", registry.save(changed, "somebody"));
      yield* same("as it is listed", (yield* found(known.id))?.chatbot, known);
      yield* same("the notes", (yield* registry.audit(1000)).length, before + 1);
      yield* same("what it opens", (yield* directory.open(theirs.id))?.chatbot, owner);
    }),
  ),

  check(
    "chatbots of one name in two workspaces are two",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const name = fresh("chatbot");
      const a = yield* registry.save(declaration({ name, workspaceName: "A" }), "somebody");
      const b = yield* registry.save(declaration({ name, workspaceName: "B" }), "somebody");
      yield* same("their ids differ", a.id === b.id, false);
    }),
  ),
];
