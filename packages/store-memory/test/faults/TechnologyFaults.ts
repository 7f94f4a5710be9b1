/**
 * Stores, each over another technology and each with the bug that this technology invites. The
 * comment above each quotes the promise that it breaks.
 */
import { RetryKeyReused, retryKeyLifetime, type ChatQuery, type Taken } from "@parley/core";
import { Effect, Stream } from "effect";
import { shared, withArchive, withErasures, withChats, withTurns, type Fault } from "./Faults.ts";
import { pageOf } from "../../src/Listing.ts";
import { atPresent, type Memory } from "../../src/Memory.ts";
import { makeChatArchive } from "../../src/MemoryChatArchive.ts";
import { entryOf, makeChatStore } from "../../src/MemoryChatStore.ts";
import { makeTurnStore } from "../../src/MemoryTurnStore.ts";
import { isHeld, type Held } from "../../src/Tenant.ts";

const lockOwners = shared(() => new Map<number, number>());
const touchedAt = shared(() => new Map<string, number>());
const tombstones = shared(() => new Set<string>());
const uncounted = shared(() => new Set<string>());
const firstTurns = shared(() => new Map<string, string>());
const takenAt = shared(() => new Map<string, number>());

export const technologyFaults: ReadonlyArray<Fault> = [
  {
    // Redis locks. decisions.md: "The key of a row is (chatbot, id)"; "An ask never waits for another chat's answer".
    name: "the lock of a turn is named by the chat's id alone, so that chats of two chatbots with one id share it",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.flatMap(stores.turns.take(chatbot, chat, retryKey), (taken) =>
            atPresent((now): Effect.Effect<Taken> => {
              if (taken._tag !== "Turn" || chat === null) return Effect.succeed(taken);
              const owners = lockOwners(memory);
              const owner = owners.get(chat) ?? chatbot;
              const held = memory.tenant(owner).byId.get(chat)?.turn ?? null;
              if (owner === chatbot || !isHeld(held, now)) {
                owners.set(chat, chatbot);
                return Effect.succeed(taken);
              }
              const { byId, requests } = memory.tenant(chatbot);
              byId.get(chat)!.turn = null;
              if (retryKey !== null) requests.delete(retryKey.key);
              return Effect.succeed({ _tag: "Held", forMillis: held.until - now, by: "chat" });
            }),
          ),
      }),
  },
  {
    // MySQL, PAD SPACE collation. decisions.md: "`userRef` matches exactly" (Erasable `UserRef`).
    name: "erasing a user's chats takes those of users whose reference differs in trailing spaces, too",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) => {
          if (which._tag !== "UserRef") return stores.archive.erase(chatbot, which);
          const unpadded = (text: string) => text.replace(/ +$/, "");
          const same = (ref: string | null): ref is string =>
            ref !== null && unpadded(ref) === unpadded(which.userRef);
          return Effect.suspend(() => {
            const refs = new Set(memory.tenant(chatbot).chats.map((chat) => chat.userRef));
            const erasures = [...refs]
              .filter(same)
              .map((userRef) => stores.archive.erase(chatbot, { _tag: "UserRef", userRef }));
            return Effect.map(Effect.all(erasures), (counts) => counts.reduce((a, b) => a + b, 0));
          });
        },
      }),
  },
  {
    // MySQL's max_sort_length. decisions.md: "Text sorts by code point".
    name: "entries are sorted by the first 1024 bytes of a question or answer only",
    break: (stores, memory) =>
      withChats(stores, {
        listEntries: (chatbot, chatId, query) =>
          Effect.suspend(() => {
            const chat = memory.tenant(chatbot).byId.get(chatId);
            if (chat === undefined) return stores.chats.listEntries(chatbot, chatId, query);
            const cut = (text: string) => Buffer.from(text).subarray(0, 1024).toString("latin1");
            const rows = chat.entries.filter(({ id }) => query.id === null || id === query.id);
            const { items, total } = pageOf(rows, query, (entry, field) => {
              if (field === "_createTime") return entry.createTime;
              if (field === "chat_id") return entry.chatId;
              return field === "question" || field === "answer" ? cut(entry[field]) : entry[field];
            });
            return Effect.succeed({ items: items.map(entryOf), total });
          }),
      }),
  },
  {
    // A DATETIME without fraction. TurnStore: "How long a turn is held without being renewed, in milliseconds" (10,000).
    name: "the end of a lease is kept in whole seconds, rounded down",
    break: (stores, memory) => {
      const rounded = (held: Held): Held => ({ ...held, until: held.until - (held.until % 1000) });
      const round = (chatbot: number, chatId: number | null, key: string | undefined) => {
        const { byId, requests } = memory.tenant(chatbot);
        const chat = chatId === null ? undefined : byId.get(chatId);
        if (chat?.turn != null) chat.turn = rounded(chat.turn);
        const request = key === undefined ? undefined : requests.get(key);
        if (request?.holder == null) return;
        requests.set(key!, { ...request, holder: rounded(request.holder) });
      };
      return withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.tap(stores.turns.take(chatbot, chat, retryKey), () =>
            Effect.sync(() => round(chatbot, chat, retryKey?.key)),
          ),
        renew: (turn) =>
          Effect.tap(stores.turns.renew(turn), () =>
            Effect.sync(() => round(turn.chatbot, turn.chat, turn.retryKey?.key)),
          ),
      });
    },
  },
  {
    // Mongoose's updatedAt. ChatArchive: "Chats that were made before the limit and have no entry since".
    name: "taking a turn counts as use of the chat, so that idle chats are kept even if nothing was answered",
    break: (stores, memory) => ({
      ...withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.tap(stores.turns.take(chatbot, chat, retryKey), ({ _tag }) =>
            atPresent((now) => {
              if (_tag === "Turn") touchedAt(memory).set(`${chatbot}/${chat}`, now);
              return Effect.void;
            }),
          ),
      }),
      archive: {
        ...stores.archive,
        erase: (chatbot, which) => {
          if (which._tag !== "IdleSince") return stores.archive.erase(chatbot, which);
          return Effect.suspend(() => {
            const limit = which.limit.getTime();
            const idle = memory
              .tenant(chatbot)
              .chats.filter(
                ({ createTime, entries, id }) =>
                  createTime.getTime() < limit &&
                  (entries.at(-1)?.createTime.getTime() ?? 0) < limit &&
                  (touchedAt(memory).get(`${chatbot}/${id}`) ?? 0) < limit,
              );
            const erasures = idle.map(({ id }) =>
              stores.archive.erase(chatbot, { _tag: "Chat", id }),
            );
            return Effect.as(Effect.all(erasures), idle.length);
          });
        },
      },
    }),
  },
  {
    // Sharded SQL, hi/lo ids. ChatStore: ids "of entries [ascend] within a chat".
    name: "each instance gives entries ids of a block of its own, so that they do not ascend when instances alternate",
    break: (_, memory) => {
      let block: Array<number> = [];
      const addEntry: Memory["addEntry"] = (chat, entry, now) => {
        if (block.length === 0) block = Array.from({ length: 20 }, () => memory.next("entry"));
        const stored = { ...memory.addEntry(chat, entry, now), id: block.shift()! };
        chat.entries.splice(-1, 1, stored);
        chat.entries.sort((a, b) => a.id - b.id);
        return stored;
      };
      const moveTo: Memory["moveTo"] = (kind, id) => {
        block = [];
        memory.moveTo(kind, id);
      };
      const faulty: Memory = { ...memory, addEntry, moveTo };
      return {
        chats: makeChatStore(faulty),
        turns: makeTurnStore(faulty),
        archive: makeChatArchive(faulty),
      };
    },
  },
  {
    // MongoDB, a cursor's first batch. ChatArchive: the export is "Every chat and entry of the chatbot".
    name: "an export has the first 101 entries of each chat only",
    break: (stores) =>
      withArchive(stores, {
        export: (chatbot) =>
          Stream.suspend(() => {
            let entries = 0;
            return Stream.filter(stores.archive.export(chatbot), ({ _tag }) => {
              entries = _tag === "Chat" ? 0 : entries + 1;
              return entries <= 101;
            });
          }),
      }),
  },
  {
    // SQLite's lower(), which knows ASCII only. decisions.md: "both sides folded by one function in the core".
    name: "an import fills the column for searches by a function that lower-cases ASCII letters only",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.tap(stores.archive.import(chatbot, records), () =>
            Effect.sync(() => {
              for (const chat of memory.tenant(chatbot).chats) {
                const lower = chat.name?.replace(/[A-Z]+/g, (text) => text.toLowerCase()) ?? null;
                Object.assign(chat, { folded: lower });
              }
            }),
          ),
      }),
  },
  {
    // Cassandra's tombstones, newer than rows that keep their times. ChatArchive: "Stores an export with its ids and times, whole".
    name: "chats that were erased and are imported again stay erased",
    break: (stores, memory) =>
      withArchive(
        withErasures(stores, memory, (chatbot, erased) => {
          for (const id of erased) tombstones(memory).add(`${chatbot}/${id}`);
        }),
        {
          import: (chatbot, records) =>
            Effect.tap(stores.archive.import(chatbot, records), () =>
              Effect.sync(() => {
                const { byId, chats } = memory.tenant(chatbot);
                const kept = chats.filter(({ id }) => !tombstones(memory).has(`${chatbot}/${id}`));
                chats.splice(0, chats.length, ...kept);
                for (const id of byId.keys())
                  if (!chats.some((chat) => chat.id === id)) byId.delete(id);
              }),
            ),
        },
      ),
  },
  {
    // READ COMMITTED. ChatStore: "One page of the chatbot's chats, and how many match, of one snapshot".
    name: "chats are counted by a query of its own before the page is read",
    break: (stores) =>
      withChats(stores, {
        listChats: Effect.fnUntraced(function* (chatbot: number, query: ChatQuery) {
          const { total } = yield* stores.chats.listChats(chatbot, query);
          yield* Effect.yieldNow;
          const { items } = yield* stores.chats.listChats(chatbot, query);
          return { items, total };
        }),
      }),
  },
  {
    // ON CONFLICT DO UPDATE that forgets a column. TurnStore: "The retry key's request was answered before, in the turn of that name".
    name: "an answered key tells of the turn that took it first, even if that turn was lost and another answered",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.suspend(() => {
            const name = `${chatbot}/${retryKey?.key}`;
            const isNew = retryKey !== null && !memory.tenant(chatbot).requests.has(retryKey.key);
            return Effect.map(stores.turns.take(chatbot, chat, retryKey), (taken) => {
              const first = firstTurns(memory);
              if (taken._tag === "Turn" && isNew) first.set(name, taken.turn.id);
              return taken._tag === "Done"
                ? { ...taken, turn: first.get(name) ?? taken.turn }
                : taken;
            });
          }),
      }),
  },
  {
    // A row that only its owner deletes. TurnStore: "A key whose request ended without a trace is free again".
    name: "a key whose turn ran out without being released is still refused to another request",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          atPresent((now) => {
            const { requests } = memory.tenant(chatbot);
            const known = retryKey === null ? undefined : requests.get(retryKey.key);
            const reused =
              known !== undefined &&
              known.fingerprint !== retryKey!.fingerprint &&
              now - known.madeAt < retryKeyLifetime;
            return reused
              ? Effect.fail(new RetryKeyReused({ key: retryKey!.key }))
              : stores.turns.take(chatbot, chat, retryKey);
          }),
      }),
  },
  {
    // DynamoDB's TTL, set by the first write only. RetryKey: "How long a key that made something stays known" (24 h).
    name: "the 24 hours of an answered key count from the taking of its turn, not from the answer",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          atPresent((now) => {
            const { requests } = memory.tenant(chatbot);
            const known = retryKey === null ? undefined : requests.get(retryKey.key);
            const since = takenAt(memory).get(known?.turn ?? "") ?? now;
            if (known?.entry != null && now - since >= retryKeyLifetime)
              requests.delete(retryKey!.key);
            return Effect.tap(stores.turns.take(chatbot, chat, retryKey), (taken) =>
              Effect.sync(() => {
                if (taken._tag === "Turn") takenAt(memory).set(taken.turn.id, now);
              }),
            );
          }),
      }),
  },
  {
    // A counter table. decisions.md: "`meta.total` counts what matches the filters [...], exact".
    name: "the total of all chats is a counter that chats made by an ask do not raise",
    break: (stores, memory) =>
      withChats(
        withTurns(stores, {
          append: (turn, entry) =>
            Effect.tap(stores.turns.append(turn, entry), ({ chatId }) =>
              Effect.sync(() => {
                if (turn.chat === null) uncounted(memory).add(`${turn.chatbot}/${chatId}`);
              }),
            ),
        }),
        {
          listChats: (chatbot, query) =>
            Effect.map(stores.chats.listChats(chatbot, query), (page) => {
              if (query.id !== null || query.userRef !== null || query.search) return page;
              const missed = memory
                .tenant(chatbot)
                .chats.filter(({ id }) => uncounted(memory).has(`${chatbot}/${id}`));
              return { ...page, total: page.total - missed.length };
            }),
        },
      ),
  },
];
