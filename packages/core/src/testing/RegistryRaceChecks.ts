/**
 * What `ChatbotRegistry` and `ChatbotDirectory` promise where several write or read at once.
 */
import { Effect } from "effect";
import { ChatbotDirectory } from "../ChatbotDirectory.ts";
import { ChatbotRegistry, type KeyChange } from "../ChatbotRegistry.ts";
import { KeyNotFound } from "../Errors.ts";
import { check, same, type Check } from "./Check.ts";
import {
  bothAtOnce,
  fresh,
  found,
  keyOf,
  newChatbot,
  newKey,
  notesOf,
} from "./RegistryFixtures.ts";
import { StoreUnderTest } from "./StoreUnderTest.ts";

export const registryRaceChecks: ReadonlyArray<
  Check<ChatbotRegistry | ChatbotDirectory | StoreUnderTest>
> = [
  check(
    "changes of different fields that come together all count",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const { id, settings } = yield* registry.create(newChatbot(), "somebody");
      const wanted = { helloMessage: "Hi", instructions: "Be kind", model: "m", retentionDays: 7 };
      const changing = Object.entries(wanted).map(([field, value]) =>
        registry.change(id, { settings: { [field]: value } }, "somebody"),
      );
      const describing = Array.from({ length: 12 }, (_, n) =>
        registry.change(id, { description: `description ${n}` }, "somebody"),
      );
      yield* Effect.all([...describing, ...changing], { concurrency: "unbounded" });
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
        const [made, moved] = yield* bothAtOnce(round, [
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
        const done = yield* bothAtOnce(round, [
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
    "what is written counts, whatever another instance wrote in between or writes at the same time",
    Effect.fnUntraced(function* () {
      const registry = yield* ChatbotRegistry;
      const directory = yield* ChatbotDirectory;
      const { second } = yield* StoreUnderTest;
      const { id } = yield* registry.create(newChatbot(), "somebody");
      const other = yield* registry.create(newChatbot(), "somebody");
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
        yield* bothAtOnce(round, [
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

        // Two that add one key to different chatbots.
        const shared = newKey();
        const isAdded = yield* bothAtOnce(round, [
          Effect.isSuccess(registry.addKey(id, shared, "x")),
          Effect.isSuccess(second.registry.addKey(other.id, shared, "x")),
        ]);
        yield* same("who added the key", isAdded.toSorted(), [false, true]);
        const opens = (yield* directory.open(shared.id))?.chatbot.id;
        yield* same("what it opens", opens, isAdded[0] ? id : other.id);

        // Of two that replace it at once, the earlier end counts; and a use does not bring it back.
        const [twice, early] = [newKey(), newKey()];
        const sooner = new Date("2031-01-01T00:00:00.000Z");
        yield* registry.addKey(id, twice, "somebody");
        yield* bothAtOnce(round, [
          Effect.orDie(
            registry.replaceKey(id, twice.id, { ...early, expiresAt: null }, sooner, "x"),
          ),
          Effect.orDie(
            second.registry.replaceKey(id, twice.id, { ...newKey(), expiresAt: null }, end, "x"),
          ),
        ]);
        yield* same("its end", (yield* keyOf(id, twice.id))?.expiresAt, sooner);
        yield* bothAtOnce(round, [
          Effect.orDie(directory.used([twice.id])),
          Effect.orDie(second.registry.revokeKey(id, twice.id, "x")),
        ]);
        yield* same("what it opens", yield* directory.open(twice.id), null);
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
          const instance = n % 2 === 0 ? registry : second.registry;
          const keyId = keys[n % 3]!.id;
          const name = `value ${n}`;
          // Each of the kinds below comes to each of the keys, from each of the instances.
          const kind = Math.floor(n / 6) % 10;
          const one: Effect.Effect<string, unknown> =
            kind < 5
              ? Effect.as(
                  instance.changeKey(id, keyId, { name }, "racer"),
                  `change-key ${keyId}: name`,
                )
              : kind < 8
                ? Effect.as(
                    instance.change(id, { settings: { model: name } }, "racer"),
                    "change model",
                  )
                : kind === 8 || n < 60
                  ? Effect.as(
                      instance.replaceKey(
                        id,
                        keyId,
                        { ...newKey(), expiresAt: null },
                        new Date("2040-01-01"),
                        "racer",
                      ),
                      "add-key",
                    )
                  : Effect.as(instance.revokeKey(id, keyId, "racer"), `revoke-key ${keyId}`);
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
        counts.set(one.success, (counts.get(one.success) ?? 0) + 1);
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
];
