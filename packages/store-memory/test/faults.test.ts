/**
 * Tests that the conformance kit finds faulty stores, each of which breaks one promise.
 */
import { assert, it } from "@effect/vitest";
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  TurnStore,
  type IdempotencyKey,
} from "@parley/core/ports";
import {
  archiveChecks,
  chatStoreChecks,
  idempotencyChecks,
  registryChecks,
  storeUnderTest,
  turnStoreChecks,
  visitorChecks,
  type Check,
  type StoreServices,
} from "@parley/core/testing";
import { layerMemoryOf, makeMemory } from "@parley/store-memory";
import { Context, Effect, Exit, Layer, Stream } from "effect";

interface Stores {
  readonly chats: ChatStore["Service"];
  readonly turns: TurnStore["Service"];
  readonly archive: ChatArchive["Service"];
  readonly registry: ChatbotRegistry["Service"];
  readonly directory: ChatbotDirectory["Service"];
}

type Checks = ReadonlyArray<Check<StoreServices>>;

/** The methods in which a faulty store differs from the sound one. */
type Fault = (sound: Stores) => { readonly [Port in keyof Stores]?: Partial<Stores[Port]> };

const faults: ReadonlyArray<readonly [name: string, foundBy: Checks, Fault]> = [
  [
    "a list's total counts only the rows of the page",
    chatStoreChecks,
    ({ chats }) => ({
      chats: {
        listChats: (chatbot, query) =>
          Effect.map(chats.listChats(chatbot, query), ({ items }) => ({
            items,
            total: items.length,
          })),
      },
    }),
  ],
  [
    "a page of entries and its total are not read from one snapshot",
    chatStoreChecks,
    ({ chats }) => ({
      chats: {
        listEntries: (chatbot, chat, query) =>
          Effect.gen(function* () {
            const { items } = yield* chats.listEntries(chatbot, chat, query);
            yield* Effect.yieldNow;
            const { total } = yield* chats.listEntries(chatbot, chat, query);
            return { items, total };
          }),
      },
    }),
  ],
  [
    "an idempotency key reused for a different request creates a chat",
    idempotencyChecks,
    ({ chats }) => ({
      chats: {
        createChat: (chatbot, chat, idempotencyKey) =>
          Effect.catchTag(
            chats.createChat(chatbot, chat, idempotencyKey),
            "IdempotencyKeyReused",
            () => chats.createChat(chatbot, chat, null),
          ),
      },
    }),
  ],
  [
    "a visitor reads the history of somebody else's chat",
    visitorChecks,
    ({ chats: { listEntries } }) => ({
      chats: { listEntries: (chatbot, chat, query) => listEntries(chatbot, chat, query) },
    }),
  ],
  [
    "a list ignores the userRef if an id is given",
    visitorChecks,
    ({ chats: { listChats } }) => ({
      chats: {
        listChats: (chatbot, query) =>
          listChats(chatbot, query.id === null ? query : { ...query, userRef: null }),
      },
    }),
  ],
  [
    "a visitor takes the turn of somebody else's chat",
    visitorChecks,
    ({ turns: { take } }) => ({
      turns: {
        take: (chatbot, chat, key, visitor) =>
          take(chatbot, chat, key, chat === null ? visitor : null),
      },
    }),
  ],
  [
    "a chat created by a visitor's ask has no userRef",
    visitorChecks,
    ({ turns: { append } }) => ({
      turns: { append: (turn, entry) => append({ ...turn, visitor: null }, entry) },
    }),
  ],
  [
    "idempotency keys from different visitors collide",
    visitorChecks,
    ({ chats: { createChat }, turns: { take } }) => {
      const shared = (key: IdempotencyKey | null) =>
        key && { ...key, key: key.key.split("\n")[0]! };
      return {
        chats: { createChat: (chatbot, chat, key) => createChat(chatbot, chat, shared(key)) },
        turns: {
          take: (chatbot, chat, key, visitor) => take(chatbot, chat, shared(key), visitor),
        },
      };
    },
  ],
  [
    "a visitor can tell whether another user's chat is in use",
    visitorChecks,
    ({ turns: { take } }) => ({
      turns: {
        take: (chatbot, chat, key, visitor) =>
          Effect.catchTag(take(chatbot, chat, key, visitor), "ChatNotFound", (error) =>
            Effect.flatMap(take(chatbot, chat, key), (outcome) =>
              outcome._tag === "Held" ? Effect.succeed(outcome) : Effect.fail(error),
            ),
          ),
      },
    }),
  ],
  [
    "a failed ask's tokens are not counted",
    turnStoreChecks,
    ({ turns: { release } }) => ({ turns: { release: (turn) => release(turn) } }),
  ],
  [
    "renewing a lost turn succeeds",
    turnStoreChecks,
    ({ turns }) => ({ turns: { renew: (turn) => Effect.as(turns.renew(turn), true) } }),
  ],
  [
    "a turn's entries are in order, oldest first",
    turnStoreChecks,
    ({ turns }) => ({
      turns: {
        take: (chatbot, chat, idempotencyKey) =>
          Effect.map(turns.take(chatbot, chat, idempotencyKey), (result) =>
            result._tag === "TurnTaken"
              ? { ...result, turn: { ...result.turn, newest: result.turn.newest.toReversed() } }
              : result,
          ),
      },
    }),
  ],
  [
    "an erasure of idle chats also erases those last used exactly at the limit",
    archiveChecks,
    ({ archive }) => ({
      archive: {
        erase: (chatbot, which, actor) => {
          const isIdle = which._tag === "IdleSince";
          const limit = new Date(isIdle ? which.limit.getTime() + 1 : 0);
          return archive.erase(chatbot, isIdle ? { ...which, limit } : which, actor);
        },
      },
    }),
  ],
  [
    "an export reads its first record from a different snapshot",
    archiveChecks,
    ({ archive }) => ({
      archive: {
        export: (chatbot, actor) =>
          Stream.concat(
            Stream.take(archive.export(chatbot, actor), 1),
            Stream.drop(archive.export(chatbot, actor), 1),
          ),
      },
    }),
  ],
  [
    "a failed import keeps its first record",
    archiveChecks,
    ({ archive }) => ({
      archive: {
        import: (chatbot, records, actor) =>
          Effect.tapError(archive.import(chatbot, records, actor), () =>
            Effect.ignore(archive.import(chatbot, Stream.take(records, 1), actor)),
          ),
      },
    }),
  ],
  [
    "a change to a chatbot overwrites a concurrent change to other settings",
    registryChecks,
    ({ registry }) => ({
      registry: {
        change: (id, change, actor) =>
          Effect.gen(function* () {
            const current = (yield* registry.list).find(({ chatbot }) => chatbot.id === id);
            yield* Effect.yieldNow;
            const settings = { ...current?.chatbot.settings, ...change.settings };
            return yield* registry.change(id, { ...change, settings }, actor);
          }),
      },
    }),
  ],
  [
    "a revoked key stays valid if it was used before",
    registryChecks,
    ({ directory }) => {
      const grants = new Map<string, Effect.Success<ReturnType<typeof directory.find>>>();
      return {
        directory: {
          find: (keyId) =>
            Effect.map(directory.find(keyId), (grant) => {
              if (grant !== null) grants.set(keyId, grant);
              return grant ?? grants.get(keyId) ?? null;
            }),
        },
      };
    },
  ],
];

const layerFaulty = (fault: Fault) => {
  const faulty = Layer.effectContext(
    Effect.gen(function* () {
      const sound = {
        chats: yield* ChatStore,
        turns: yield* TurnStore,
        archive: yield* ChatArchive,
        registry: yield* ChatbotRegistry,
        directory: yield* ChatbotDirectory,
      };
      const { archive, chats, directory, registry, turns } = fault(sound);
      return Context.make(ChatStore, { ...sound.chats, ...chats }).pipe(
        Context.add(TurnStore, { ...sound.turns, ...turns }),
        Context.add(ChatArchive, { ...sound.archive, ...archive }),
        Context.add(ChatbotRegistry, { ...sound.registry, ...registry }),
        Context.add(ChatbotDirectory, { ...sound.directory, ...directory }),
      );
    }),
  );
  return storeUnderTest(Layer.provideMerge(faulty, layerMemoryOf(makeMemory())));
};

it.effect.each(faults)("the kit finds a store in which %s", ([, foundBy, fault]) =>
  Effect.gen(function* () {
    for (const { run } of foundBy) if (Exit.isFailure(yield* Effect.exit(run))) return;
    assert.fail("no check fails");
  }).pipe(Effect.provide(layerFaulty(fault))),
);
