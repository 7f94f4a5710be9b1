/**
 * Faults that take size, time or several features at once to be seen.
 */
import {
  fold,
  ImportRefused,
  inOrder,
  retryKeyLifetime,
  turnEntries,
  type Entry,
  type RetryKey,
  type Turn,
} from "@parley/core";
import { Effect, Stream } from "effect";
import {
  forgetKeys,
  withArchive,
  withChats,
  withErasures,
  withTurns,
  type Fault,
} from "./Faults.ts";
import { makeChatArchive } from "../../src/MemoryChatArchive.ts";
import { makeChatStore } from "../../src/MemoryChatStore.ts";
import { atPresent, type Memory } from "../../src/Memory.ts";
import type { KnownRequest, StoredChat, Tenant } from "../../src/Tenant.ts";

/** The same memory, but with other chats to be read. */
const seenAs = (memory: Memory, see: (chat: StoredChat) => StoredChat): Memory => ({
  ...memory,
  tenant: (chatbot) => {
    const tenant = memory.tenant(chatbot);
    return { ...tenant, chats: tenant.chats.map(see) };
  },
});

/** Replaces what is known of retry keys, oldest first. */
const setRequests = ({ requests }: Tenant, known: Array<[string, KnownRequest]>): void => {
  requests.clear();
  for (const [key, request] of known.toSorted(([, a], [, b]) => a.madeAt - b.madeAt)) {
    requests.set(key, request);
  }
};

/** Katakana as hiragana, as several collations see them. */
const kana = (text: string): string =>
  text.replace(/[\u30a1-\u30f6]/g, (unit) => String.fromCharCode(unit.charCodeAt(0) - 0x60));

export const hardFaults: ReadonlyArray<Fault> = [
  // TurnStore, Taken: "The retry key's request was answered before" is `Done`, for 24 hours.
  {
    name: "a retry key is only known while its entry is among the chat's newest twenty",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (chatbot, chat, key) =>
          Effect.flatMap(stores.turns.take(chatbot, chat, key), (taken) => {
            if (taken._tag !== "Done") return Effect.succeed(taken);
            const { byId, requests } = memory.tenant(chatbot);
            const newest = byId.get(taken.entry.chatId)!.entries.slice(-turnEntries);
            if (newest.some(({ id }) => id === taken.entry.id)) return Effect.succeed(taken);
            requests.delete(key!.key);
            return stores.turns.take(chatbot, chat, key);
          }),
      }),
  },

  // ChatArchive.erase: "Erases the chats with everything that refers to them".
  {
    name: "an erasure of many chats forgets the creations' retry keys of the first hundred only",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            const tenant = memory.tenant(chatbot);
            const chats = [...tenant.chats];
            const known = [...tenant.requests];
            return Effect.tap(stores.archive.erase(chatbot, which), () =>
              Effect.sync(() => {
                const erased = chats.filter(({ id }) => !tenant.byId.has(id)).map(({ id }) => id);
                const late = new Set(erased.slice(100));
                const stays = ([key, { chat, entry }]: [string, KnownRequest]) =>
                  tenant.requests.has(key) || (entry === null && chat !== null && late.has(chat));
                setRequests(tenant, known.filter(stays));
              }),
            );
          }),
      }),
  },

  // Erasable: `UserRef` means the chats of that reference; decisions.md: "`userRef` matches exactly".
  {
    name: "an erasure by a userRef of digits erases those that are equal as numbers, too",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            if (which._tag !== "UserRef") return stores.archive.erase(chatbot, which);
            const isNumber = (text: string) => /^\d+$/.test(text);
            const isMeant = (userRef: string | null) =>
              userRef === which.userRef ||
              (userRef !== null &&
                isNumber(userRef) &&
                isNumber(which.userRef) &&
                Number(userRef) === Number(which.userRef));
            const meant = memory.tenant(chatbot).chats.filter((chat) => isMeant(chat.userRef));
            return Effect.as(
              Effect.forEach(meant, ({ id }) =>
                stores.archive.erase(chatbot, { _tag: "Chat", id }),
              ),
              meant.length,
            );
          }),
      }),
  },

  // ChatArchive.usage: "Sums per provider and model … over the entries stored at that time or later".
  {
    name: "the usage counts only the newest hundred entries of each chat",
    break: (stores, memory) =>
      withArchive(stores, {
        usage: makeChatArchive(
          seenAs(memory, (chat) => ({ ...chat, entries: chat.entries.slice(-100) })),
        ).usage,
      }),
  },

  // ChatArchive.export: "Every chat and entry of the chatbot, of one snapshot".
  {
    name: "an export ends early when the same instance begins another one meanwhile",
    break: (stores) => {
      let cursor = 0;
      return withArchive(stores, {
        export: (chatbot) =>
          Stream.suspend(() => {
            const mine = ++cursor;
            return stores.archive.export(chatbot).pipe(
              Stream.rechunk(50),
              Stream.takeWhile(() => mine === cursor),
            );
          }),
      });
    },
  },

  // ChatArchive.import: "Refused are … ids that are twice".
  {
    name: "an import drops an entry whose id came a hundred entries before, instead of being refused",
    break: (stores) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            const seen = new Map<number, number>();
            let entries = 0;
            const kept = Stream.filter(inOrder(records), (record) => {
              if (record._tag === "Chat") return true;
              const { id } = record.entry;
              const before = seen.get(id);
              seen.set(id, before ?? entries);
              entries++;
              return before === undefined || entries - before <= 100;
            });
            return stores.archive.import(chatbot, kept);
          }),
      }),
  },

  // decisions.md: "an import keeps its ids whatever other chatbots use"; only what the port lists is refused.
  {
    name: "two imports at once, into different chatbots, are refused when they share ids of entries",
    break: (stores) => {
      const staged = new Map<number, object>();
      return withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            const mine = {};
            const staging = Stream.tap(records, (record) => {
              if (record._tag === "Chat") return Effect.void;
              const { id } = record.entry;
              const owner = staged.get(id);
              if (owner !== undefined && owner !== mine) {
                return Effect.fail(new ImportRefused({ reason: "two entries have one id" }));
              }
              staged.set(id, mine);
              return Effect.void;
            });
            const clear = Effect.sync(() => {
              for (const [id, owner] of staged) if (owner === mine) staged.delete(id);
            });
            return Effect.ensuring(stores.archive.import(chatbot, staging), clear);
          }),
      });
    },
  },

  // TurnStore.append: "Appends the entry"; a refused import of another chatbot has nothing to do with it.
  {
    name: "an import that is refused takes back the entries that its instance appended meanwhile",
    break: (stores, memory) => {
      let running = 0;
      let appended: Array<readonly [number, Entry]> = [];
      const rollBack = Effect.sync(() => {
        for (const [chatbot, { chatId, id }] of appended) {
          const { byId, requests } = memory.tenant(chatbot);
          const entries = byId.get(chatId)?.entries;
          const at = entries?.findIndex((entry) => entry.id === id) ?? -1;
          if (at !== -1) entries!.splice(at, 1);
          for (const [key, { entry }] of requests) if (entry === id) requests.delete(key);
        }
      });
      const archive = withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            if (running++ === 0) appended = [];
            return stores.archive.import(chatbot, records).pipe(
              Effect.tapError(() => rollBack),
              Effect.ensuring(Effect.sync(() => running--)),
            );
          }),
      });
      return withTurns(archive, {
        append: (turn, entry) =>
          Effect.tap(stores.turns.append(turn, entry), (stored) =>
            Effect.sync(() => running > 0 && appended.push([turn.chatbot, stored])),
          ),
      });
    },
  },

  // TurnStore.take: a turn "stays its owner's until another takes it"; a refused import writes nothing.
  {
    name: "a refused import into an empty chatbot ends the turns of new chats that have a retry key",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.tapError(stores.archive.import(chatbot, records), () =>
            Effect.sync(() => {
              const { chats, requests } = memory.tenant(chatbot);
              if (chats.length === 0) requests.clear();
            }),
          ),
      }),
  },

  // ChatArchive.erase: "Erases the chats with everything that refers to them".
  {
    name: "the retry keys of erased chats are known again once the chats are imported again",
    break: (stores, memory) => {
      const hidden = new Map<number, Array<[string, KnownRequest]>>();
      return withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            const { requests } = memory.tenant(chatbot);
            const known = [...requests];
            return Effect.tap(stores.archive.erase(chatbot, which), () =>
              Effect.sync(() => {
                const gone = known.filter(([key]) => !requests.has(key));
                hidden.set(chatbot, [...(hidden.get(chatbot) ?? []), ...gone]);
              }),
            );
          }),
        import: (chatbot, records) =>
          Effect.tap(stores.archive.import(chatbot, records), () =>
            Effect.sync(() => {
              const tenant = memory.tenant(chatbot);
              const back = (hidden.get(chatbot) ?? []).filter(([key, { chat, entry }]) => {
                const entries = tenant.byId.get(chat!)?.entries;
                const isThere = entry === null || entries?.some(({ id }) => id === entry);
                return entries !== undefined && isThere && !tenant.requests.has(key);
              });
              setRequests(tenant, [...tenant.requests, ...back]);
            }),
          ),
      });
    },
  },

  // ChatArchive.erase: "with everything that refers to them"; Turn: `newest` is the chat's newest entries.
  {
    name: "a turn brings along what its instance saw before the chat was erased and imported with other texts",
    break: (stores) => {
      const cache = new Map<string, Turn["newest"]>();
      return withTurns(stores, {
        take: (chatbot, chat, key) =>
          Effect.map(stores.turns.take(chatbot, chat, key), (taken) => {
            if (taken._tag !== "Turn" || chat === null) return taken;
            const { turn } = taken;
            const name = `${chatbot}/${chat}`;
            const cached = cache.get(name);
            // Entries never change, so the newest one's id tells whether any came since.
            const isFresh =
              cached?.length === turn.newest.length && cached[0]?.id === turn.newest[0]?.id;
            const newest = isFresh ? cached : turn.newest;
            cache.set(name, newest);
            return { ...taken, turn: { ...turn, newest } };
          }),
      });
    },
  },

  // decisions.md: "The key of a row is (chatbot, id)"; RetryKey: known for 24 hours.
  {
    name: "an erasure forgets the retry keys of asks in another chatbot's chat of the same id",
    break: (stores, memory) => {
      const chatbots = new Set<number>();
      const turns = withTurns(stores, {
        take: (chatbot, chat, key) => {
          chatbots.add(chatbot);
          return stores.turns.take(chatbot, chat, key);
        },
      });
      return withErasures(turns, memory, (_, erased) => forgetKeys(memory, chatbots, erased));
    },
  },

  // ChatQuery.search: "A literal, case-insensitive part of the name", by the one fold.
  {
    name: "a search takes hiragana and katakana for the same",
    break: (stores, memory) => {
      const blurred = makeChatStore(
        seenAs(memory, (chat) => ({
          ...chat,
          folded: chat.folded === null ? null : kana(chat.folded),
        })),
      );
      return withChats(stores, {
        listChats: (chatbot, query) =>
          query.search === null
            ? stores.chats.listChats(chatbot, query)
            : blurred.listChats(chatbot, { ...query, search: kana(fold(query.search)) }),
      });
    },
  },

  // ChatStore.createChat: "a known retry key gives the chat it made, for 24 hours from then on".
  {
    name: "a retry key that a turn gave up before it made something is forgotten a day after the giving up",
    break: (stores, memory) => {
      const born = new Map<string, number>();
      const forget = (chatbot: number, retryKey: RetryKey | null) =>
        atPresent((now) =>
          Effect.sync(() => {
            if (retryKey === null) return;
            const name = `${chatbot}/${retryKey.key}`;
            if (now - (born.get(name) ?? now) < retryKeyLifetime) return;
            born.delete(name);
            memory.tenant(chatbot).requests.delete(retryKey.key);
          }),
        );
      const chats = withChats(stores, {
        createChat: (chatbot, chat, key) =>
          Effect.andThen(forget(chatbot, key), stores.chats.createChat(chatbot, chat, key)),
      });
      return withTurns(chats, {
        take: (chatbot, chat, key) =>
          Effect.andThen(forget(chatbot, key), stores.turns.take(chatbot, chat, key)),
        release: (turn) =>
          atPresent((now) => {
            const { chatbot, id, retryKey } = turn;
            const name = `${chatbot}/${retryKey?.key}`;
            const known = memory.tenant(chatbot).requests.get(retryKey?.key ?? "");
            if (known?.holder?.turn === id && !born.has(name)) born.set(name, now);
            return stores.turns.release(turn);
          }),
      });
    },
  },

  // ChatStore.listEntries: "how many match, of one snapshot"; decisions.md: the total is exact.
  {
    name: "the total of a long history is remembered for a minute",
    break: (stores) => {
      const totals = new Map<string, { readonly total: number; readonly at: number }>();
      return withChats(stores, {
        listEntries: (chatbot, chat, query) =>
          Effect.flatMap(stores.chats.listEntries(chatbot, chat, query), (page) =>
            atPresent((now) => {
              const name = `${chatbot}/${chat}`;
              const counted = totals.get(name);
              if (query.id !== null || page.total <= 100) return Effect.succeed(page);
              if (counted !== undefined && now - counted.at < 60_000) {
                return Effect.succeed({ ...page, total: counted.total });
              }
              totals.set(name, { total: page.total, at: now });
              return Effect.succeed(page);
            }),
          ),
      });
    },
  },

  // ChatStore.listEntries: "One page of a chat's entries"; ListQuery.limit: "Rows a page, 1 to 100".
  {
    name: "a page of entries ends where its texts grow beyond 256 K",
    break: (stores) =>
      withChats(stores, {
        listEntries: (chatbot, chat, query) =>
          Effect.map(stores.chats.listEntries(chatbot, chat, query), ({ items, total }) => {
            let length = 0;
            const fits = ({ answer, question }: Entry) =>
              (length += question.length + answer.length) <= 256 * 1024;
            const end = items.findIndex((entry) => !fits(entry));
            return { items: end === -1 ? items : items.slice(0, Math.max(1, end)), total };
          }),
      }),
  },

  // Erasable: `IdleSince` means "Chats that were made before the limit and have no entry since".
  {
    name: "an erasure of idle chats judges a chat by its first hundred entries",
    break: (stores, memory) =>
      withArchive(stores, {
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            if (which._tag !== "IdleSince") return stores.archive.erase(chatbot, which);
            const idle = memory.tenant(chatbot).chats.filter(({ createTime, entries }) => {
              const last = entries.slice(0, 100).at(-1)?.createTime ?? createTime;
              return createTime < which.limit && last < which.limit;
            });
            return Effect.as(
              Effect.forEach(idle, ({ id }) => stores.archive.erase(chatbot, { _tag: "Chat", id })),
              idle.length,
            );
          }),
      }),
  },

  // TurnStore.take: a turn "stays its owner's until another takes it".
  {
    name: "an instance that holds more than 128 turns at once loses the oldest of them",
    break: (stores) => {
      const held = new Map<string, Turn>();
      return withTurns(stores, {
        take: (chatbot, chat, key) =>
          Effect.tap(stores.turns.take(chatbot, chat, key), (taken) => {
            if (taken._tag !== "Turn") return Effect.void;
            held.set(taken.turn.id, taken.turn);
            if (held.size <= 128) return Effect.void;
            const [oldest] = held.values();
            held.delete(oldest!.id);
            return stores.turns.release(oldest!);
          }),
        append: (turn, entry) =>
          Effect.ensuring(
            stores.turns.append(turn, entry),
            Effect.sync(() => held.delete(turn.id)),
          ),
        release: (turn) =>
          Effect.ensuring(
            stores.turns.release(turn),
            Effect.sync(() => held.delete(turn.id)),
          ),
      });
    },
  },

  // decisions.md: both sides are folded "so that every store agrees"; an import stores the chats as they are.
  {
    name: "a search does not find the chats that come after the hundredth of an import",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.tap(stores.archive.import(chatbot, records), () =>
            Effect.sync(() => {
              const late = memory.tenant(chatbot).chats.slice(100);
              for (const chat of late) Object.assign(chat, { folded: null });
            }),
          ),
      }),
  },

  // NewEntry.moderation: "`none`, or the category that flagged the question"; append "Appends the entry".
  {
    name: "a moderation category is cut to twenty characters when an entry is appended",
    break: (stores) =>
      withTurns(stores, {
        append: (turn, entry) =>
          stores.turns.append(turn, { ...entry, moderation: entry.moderation.slice(0, 20) }),
      }),
  },
];
