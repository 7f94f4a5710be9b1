/**
 * Seeded faults, each a store that breaks one promise of the ports: first the plain ones, then
 * boundaries and combinations of two features, then what needs two instances, a race, or state over time.
 */
import {
  turnEntries,
  turnLease,
  type ArchiveRecord,
  type Entry,
  type RetryKey,
} from "@parley/core";
import { Effect, Stream } from "effect";
import { withArchive, withChats, withTurns, type Fault } from "./Faults.ts";
import { atPresent, type Memory } from "../../src/Memory.ts";
import { makeChatArchive } from "../../src/MemoryChatArchive.ts";
import { chatOf, entryOf, makeChatStore } from "../../src/MemoryChatStore.ts";
import { makeTurnStore } from "../../src/MemoryTurnStore.ts";
import { rememberRequest, type StoredChat } from "../../src/Tenant.ts";

export const promiseFaults: ReadonlyArray<Fault> = [
  // ListQuery.id: "Only the row with this id", of a page of "a chat's entries" (`where id = ?` alone).
  {
    name: "The history with an id finds an entry of another chat of the chatbot",
    break: (stores, memory) =>
      withChats(stores, {
        listEntries: (chatbot, chat, query) =>
          Effect.map(stores.chats.listEntries(chatbot, chat, query), (page) => {
            const all = memory.tenant(chatbot).chats.flatMap(({ entries }) => entries);
            const found = all.find(({ id }) => id === query.id);
            if (found === undefined) return page;
            return { items: query.page === 1 ? [entryOf(found)] : [], total: 1 };
          }),
      }),
  },

  // ChatQuery.search: "A literal, case-insensitive part of the name" (the escape of LIKE is not escaped).
  {
    name: "Search takes a backslash for an escape of what follows it",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) =>
          stores.chats.listChats(chatbot, {
            ...query,
            search: query.search?.replace(/\\(.)/gsu, "$1") ?? null,
          }),
      }),
  },

  // ChatQuery.userRef: "Matches exactly"; only for search it says "`null` or empty filters nothing".
  {
    name: "An empty userRef filters nothing",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) =>
          stores.chats.listChats(chatbot, { ...query, userRef: query.userRef || null }),
      }),
  },

  // Erasable.IdleSince: "Chats that were made before the limit and have no entry since" (an inner join).
  {
    name: "Erasing idle chats spares those that have no entry at all",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            if (which._tag !== "IdleSince") return stores.archive.erase(chatbot, which);
            const idle = memory.tenant(chatbot).chats.filter(({ createTime, entries }) => {
              const newest = entries.at(-1);
              return newest && newest.createTime < which.limit && createTime < which.limit;
            });
            return Effect.as(
              Effect.forEach(idle, ({ id }) => stores.archive.erase(chatbot, { _tag: "Chat", id })),
              idle.length,
            );
          }),
      }),
  },

  // ChatArchive.usage: "over the entries stored at that time or later" (the join compares the chat's time).
  {
    name: "Usage leaves out recent answers in chats that were made before the given time",
    break: (stores, memory) =>
      withArchive(stores, {
        usage: (chatbot, since) =>
          Effect.suspend(() => {
            const tenant = memory.tenant(chatbot);
            const chats = tenant.chats.filter(({ createTime }) => createTime >= since);
            const recent = { ...memory, tenant: () => ({ ...tenant, chats }) };
            return makeChatArchive(recent).usage(chatbot, since);
          }),
      }),
  },

  // RetryKey.key and IdempotencyKey, any printable ASCII: two keys that differ in case are two keys.
  {
    name: "Retry keys that differ only in case are taken for one",
    break: (stores, memory) => {
      const collated = <A extends RetryKey | null>(chatbot: number, retryKey: A): A => {
        const folded = retryKey?.key.toLowerCase();
        const known = [...memory.tenant(chatbot).requests.keys()];
        const key = known.find((key) => key.toLowerCase() === folded);
        return retryKey === null || key === undefined ? retryKey : { ...retryKey, key };
      };
      return {
        ...stores,
        chats: {
          ...stores.chats,
          createChat: (chatbot, chat, key) =>
            Effect.suspend(() => stores.chats.createChat(chatbot, chat, collated(chatbot, key))),
        },
        turns: {
          ...stores.turns,
          take: (chatbot, chat, key) =>
            Effect.suspend(() => stores.turns.take(chatbot, chat, collated(chatbot, key))),
        },
      };
    },
  },

  // ListQuery: "Rows that tie in every field follow `id` in the direction of the last."
  {
    name: "Ties between two fields of opposite directions follow the id in the first one's",
    break: (stores) => {
      const byFirst = <Q extends { readonly orderBy: ReadonlyArray<{ readonly field: string }> }>(
        query: Q,
      ): Q =>
        query.orderBy.some(({ field }) => field === "id") || query.orderBy.length === 1
          ? query
          : { ...query, orderBy: [...query.orderBy, { ...query.orderBy[0], field: "id" }] };
      return withChats(stores, {
        listChats: (chatbot, query) => stores.chats.listChats(chatbot, byFirst(query)),
        listEntries: (chatbot, chat, query) =>
          stores.chats.listEntries(chatbot, chat, byFirst(query)),
      });
    },
  },

  // Taken.Done: "The retry key's request was answered before": its own entry (the record keeps but the chat).
  {
    name: "A repeated ask gets the newest entry of its chat instead of the one that its key made",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.map(stores.turns.take(chatbot, chat, retryKey), (taken) => {
            if (taken._tag !== "Done") return taken;
            const { entries } = memory.tenant(chatbot).byId.get(taken.entry.chatId)!;
            return { ...taken, entry: entryOf(entries.at(-1)!) };
          }),
      }),
  },

  // TurnStore.earlier: "Up to `turnEntries` entries older than entry `before`"; ids ascend, with gaps.
  {
    name: "Earlier entries are looked for among the 20 ids before, other chats' ones included",
    break: (stores) =>
      withTurns(stores, {
        earlier: (turn, before) =>
          Effect.map(stores.turns.earlier(turn, before), (entries) =>
            entries.filter(({ id }) => id >= before - turnEntries),
          ),
      }),
  },

  // TurnStore.renew: "Holds the turn for another lease": chat and key (`else if` between the two updates).
  {
    name: "Renewing a turn that has a retry key renews the key but not the chat",
    break: (stores, memory) =>
      withTurns(stores, {
        renew: (turn) =>
          Effect.suspend(() => {
            const { byId } = memory.tenant(turn.chatbot);
            const chat = turn.chat === null ? undefined : byId.get(turn.chat);
            const before = chat?.turn ?? null;
            return Effect.tap(stores.turns.renew(turn), () =>
              Effect.sync(() => {
                if (chat !== undefined && turn.retryKey !== null) chat.turn = before;
              }),
            );
          }),
      }),
  },

  // ChatArchive.erase: "Erases the chats with everything that refers to them": the keys that made them.
  {
    name: "Erasing by userRef or by idleness leaves the retry keys that created the chats",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            const { requests } = memory.tenant(chatbot);
            const before = [...requests];
            return Effect.tap(stores.archive.erase(chatbot, which), () =>
              Effect.sync(() => {
                if (which._tag === "Chat") return;
                const left = before.filter(([key, { turn }]) => turn === null || requests.has(key));
                requests.clear();
                for (const [key, request] of left) requests.set(key, request);
              }),
            );
          }),
      }),
  },

  // ChatStore.createChat: "Times are … never earlier than the one before", which an import may have brought.
  {
    name: "A chat made after an import from a clock ahead is earlier than the imported ones",
    break: (stores, memory) =>
      withChats(stores, {
        createChat: makeChatStore({
          ...memory,
          addChat: (tenant, chat, now) => {
            const made = { ...memory.addChat(tenant, chat, now), createTime: new Date(now) };
            tenant.chats.splice(-1, 1, made);
            tenant.byId.set(made.id, made);
            return made;
          },
        }).createChat,
      }),
  },

  // ChatArchive.import: "Stores an export …, whole or not at all" (a transaction for every hundred records).
  {
    name: "An import that fails late leaves the batches of 100 records that were read before",
    break: (stores) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            const read: Array<ArchiveRecord> = [];
            const noted = Stream.tap(records, (record) => Effect.sync(() => read.push(record)));
            return Effect.tapError(stores.archive.import(chatbot, noted), () => {
              const written = read.slice(
                0,
                Math.max(0, read.length - 1 - ((read.length - 1) % 100)),
              );
              return Effect.ignore(stores.archive.import(chatbot, Stream.fromIterable(written)));
            });
          }),
      }),
  },

  // ChatStore.createChat: "Ids of chats ascend in order of creation within a chatbot" (a cached sequence).
  {
    name: "Each instance gives chats ids from a block of ten of its own",
    break: (stores, memory) => {
      let block: Array<number> = [];
      const addChat: Memory["addChat"] = (tenant, chat, now) => {
        if (block.length === 0) block = Array.from({ length: 10 }, () => memory.next("chat"));
        const sound = memory.addChat(tenant, chat, now);
        tenant.chats.pop();
        tenant.byId.delete(sound.id);
        const made: StoredChat = { ...sound, id: block.shift()! };
        tenant.chats.splice(tenant.chats.findLastIndex(({ id }) => id < made.id) + 1, 0, made);
        tenant.byId.set(made.id, made);
        return made;
      };
      const turns = makeTurnStore({ ...memory, addChat });
      const { createChat } = makeChatStore({ ...memory, addChat });
      // An import begins a new block, so that ids go on past it.
      return withArchive(withTurns(withChats(stores, { createChat }), turns), {
        import: (chatbot, records) =>
          Effect.tap(stores.archive.import(chatbot, records), () =>
            Effect.sync(() => (block = [])),
          ),
      });
    },
  },

  // ChatStore.listChats: "One page of the chatbot's chats, and how many match, of one snapshot."
  {
    name: "The total of a list of chats is counted after its page was read",
    break: (stores) =>
      withChats(stores, {
        listChats: Effect.fnUntraced(function* (chatbot, query) {
          const { items } = yield* stores.chats.listChats(chatbot, query);
          yield* Effect.yieldNow;
          const { total } = yield* stores.chats.listChats(chatbot, query);
          return { items, total };
        }),
      }),
  },

  // TurnStore.take: "A key whose request ended without a trace is free again": one told `Held` took nothing.
  {
    name: "An ask that is told that the chat is held keeps its retry key taken for a lease",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.tap(stores.turns.take(chatbot, chat, retryKey), (taken) =>
            atPresent((now) => {
              if (taken._tag === "Held" && taken.by === "chat" && retryKey !== null) {
                const turn = String(memory.next("turn"));
                const holder = { turn, until: now + turnLease };
                const nothing = { turn, holder, chat: null, entry: null };
                rememberRequest(memory.tenant(chatbot), retryKey, now, nothing);
              }
              return Effect.void;
            }),
          ),
      }),
  },

  // TurnStore.append: "fails without a trace when another took the turn" (the chat is committed first).
  {
    name: "Appending to a chat to be made leaves an empty chat when another took the turn by its key",
    break: (stores, memory) =>
      withTurns(stores, {
        append: (turn, entry) =>
          Effect.tapErrorTag(stores.turns.append(turn, entry), "TurnLost", () =>
            atPresent((now) => {
              const { addChat, tenant } = memory;
              if (turn.chat === null) {
                addChat(tenant(turn.chatbot), { name: null, userRef: null }, now);
              }
              return Effect.void;
            }),
          ),
      }),
  },

  // ChatArchive.export: "Every chat and entry of the chatbot, of one snapshot."
  {
    name: "An export reads a chat's entries only when it comes to that chat",
    break: (stores, memory) =>
      withArchive(stores, {
        export: (chatbot) =>
          Stream.suspend(() => Stream.fromIterable([...memory.tenant(chatbot).chats])).pipe(
            Stream.flatMap((chat) =>
              Stream.suspend(() =>
                Stream.fromIterable<ArchiveRecord>([
                  { _tag: "Chat", chat: chatOf(chat) },
                  ...chat.entries.map((stored) => {
                    const { usage } = stored;
                    return { _tag: "Entry", entry: entryOf(stored), usage } as const;
                  }),
                ]),
              ),
            ),
          ),
      }),
  },

  // Turn.newest: "The chat's newest entries, newest first" (a cache that only its own instance keeps up).
  {
    name: "A turn brings the newest entries as its instance knows them, without those of another",
    break: (stores) => {
      const known = new Map<string, ReadonlyArray<Entry>>();
      return withArchive(
        withTurns(stores, {
          take: (chatbot, chat, retryKey) =>
            Effect.map(stores.turns.take(chatbot, chat, retryKey), (taken) => {
              if (taken._tag !== "Turn") return taken;
              const name = `${chatbot}/${chat}`;
              const newest = known.get(name) ?? taken.turn.newest;
              if (chat !== null) known.set(name, newest);
              return { ...taken, turn: { ...taken.turn, newest } };
            }),
          append: (turn, entry) =>
            Effect.tap(stores.turns.append(turn, entry), (made) =>
              Effect.sync(() => {
                const name = `${turn.chatbot}/${turn.chat}`;
                const newest = known.get(name);
                if (newest) known.set(name, [made, ...newest].slice(0, turnEntries));
              }),
            ),
        }),
        {
          erase: (chatbot, which) =>
            Effect.tap(stores.archive.erase(chatbot, which), () =>
              Effect.sync(() => known.clear()),
            ),
        },
      );
    },
  },
];
