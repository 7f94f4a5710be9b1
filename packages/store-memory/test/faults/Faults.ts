/**
 * Stores that break one promise each, in the ways a store over a database gets them wrong. They were
 * written from the ports alone, so that what a conformance suite misses among them is missing there.
 */
import {
  RetryKeyReused,
  turnEntries,
  type ArchiveRecord,
  type Chat,
  type ChatArchive,
  type ChatQuery,
  type ChatStore,
  type ListQuery,
  type OrderBy,
  type Page,
  type RetryKey,
  type TurnStore,
  type UsageSum,
} from "@parley/core";
import { Effect, Stream } from "effect";
import { atPresent, type Memory } from "../../src/Memory.ts";
import { makeChatArchive } from "../../src/MemoryChatArchive.ts";
import { chatOf, entryOf, makeChatStore } from "../../src/MemoryChatStore.ts";
import { rememberRequest, withoutTurn, type StoredChat, type Tenant } from "../../src/Tenant.ts";

/** The ports that a fault can be in, over one memory. */
export interface Stores {
  readonly chats: ChatStore["Service"];
  readonly turns: TurnStore["Service"];
  readonly archive: ChatArchive["Service"];
}

export interface Fault {
  /** What is broken, as a sentence. */
  readonly name: string;
  /**
   * Wraps sound stores, and `memory` must be theirs. Some faults count what passes through them, so
   * each store instance is to be wrapped once.
   */
  readonly break: (stores: Stores, memory: Memory) => Stores;
}

/** The same stores, but for what is given of one port. */
export const withChats = (stores: Stores, chats: Partial<Stores["chats"]>): Stores => ({
  ...stores,
  chats: { ...stores.chats, ...chats },
});
export const withTurns = (stores: Stores, turns: Partial<Stores["turns"]>): Stores => ({
  ...stores,
  turns: { ...stores.turns, ...turns },
});
export const withArchive = (stores: Stores, archive: Partial<Stores["archive"]>): Stores => ({
  ...stores,
  archive: { ...stores.archive, ...archive },
});

/** Erasures, after each of which something happens with the ids of the chats that are gone. */
export const withErasures = (
  stores: Stores,
  memory: Memory,
  after: (chatbot: number, erased: ReadonlySet<number>) => void,
): Stores =>
  withArchive(stores, {
    erase: (chatbot, which) =>
      Effect.suspend(() => {
        const { byId } = memory.tenant(chatbot);
        const before = [...byId.keys()];
        return Effect.tap(stores.archive.erase(chatbot, which), () =>
          Effect.sync(() => after(chatbot, new Set(before.filter((id) => !byId.has(id))))),
        );
      }),
  });

/** Forgets the retry keys of some chats, in every one of these chatbots. */
export const forgetKeys = (
  memory: Memory,
  chatbots: Iterable<number>,
  chats: ReadonlySet<number>,
): void => {
  for (const chatbot of chatbots) {
    const { requests } = memory.tenant(chatbot);
    for (const [key, { chat }] of requests) {
      if (chat !== null && chats.has(chat)) requests.delete(key);
    }
  }
};

/** State that all instances over one memory share, as they would share a table. */
export const shared = <A>(make: () => A): ((memory: Memory) => A) => {
  const states = new WeakMap<Memory, A>();
  return (memory) => {
    let state = states.get(memory);
    if (state === undefined) states.set(memory, (state = make()));
    return state;
  };
};

/** Any list query, asking for all its rows at once. */
const whole = { limit: Number.MAX_SAFE_INTEGER, page: 1 } as const;

const cut = <Row>(
  rows: ReadonlyArray<Row>,
  { limit, page }: { readonly limit: number; readonly page: number },
): Page<Row> => ({ items: rows.slice((page - 1) * limit, page * limit), total: rows.length });

/** A page of the chats that `keeps` lets through, which stands for the search. */
export const searched = (
  chats: ChatStore["Service"],
  chatbot: number,
  query: ChatQuery,
  keeps: (chat: Chat) => boolean,
) =>
  Effect.map(chats.listChats(chatbot, { ...query, ...whole, search: null }), ({ items }) =>
    cut(items.filter(keeps), query),
  );

/** Ties in the first field keep the order that `rows` have. */
const byCodeUnits = <Row>(
  rows: ReadonlyArray<Row>,
  read: (row: Row) => unknown,
  descending: boolean,
) =>
  rows.toSorted((a, b) => {
    const [x, y] = [read(a), read(b)];
    if (x === y) return 0;
    const ascending = typeof x !== "string" ? 1 : typeof y !== "string" ? -1 : x < y ? -1 : 1;
    return descending ? -ascending : ascending;
  });

const thenIdAscending = <Field extends string>(
  query: ListQuery<Field>,
): readonly [OrderBy<Field>, ...Array<OrderBy<Field | "id">>] => {
  const { orderBy } = query;
  if (orderBy.some(({ field }) => field === "id")) return orderBy;
  return [...orderBy, { field: "id", descending: false }];
};

const storedChat = (memory: Memory, chatbot: number, chat: number | null) =>
  chat === null ? undefined : memory.tenant(chatbot).byId.get(chat);

const insert = (tenant: Tenant, chat: StoredChat): void => {
  tenant.byId.set(chat.id, chat);
  tenant.chats.push(chat);
  tenant.chats.sort((a, b) => a.id - b.id);
};

/** Lets others run between the two halves of what ought to be one statement. */
const later = <A, E>(effect: () => Effect.Effect<A, E>): Effect.Effect<A, E> =>
  Effect.andThen(Effect.yieldNow, Effect.suspend(effect));

/** How many chats a counter row was not told of when they were erased. */
const uncounted = new WeakMap<Tenant, number>();

/** Which chatbot used a retry key first, where the key alone is the primary key. */
const keyOwners = new WeakMap<Memory, Map<string, number>>();

export const faults: ReadonlyArray<Fault> = [
  {
    name: "rows that tie come in ascending order of id in a descending list too",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listChats: (chatbot, query) =>
          chats.listChats(chatbot, { ...query, orderBy: thenIdAscending(query) }),
        listEntries: (chatbot, chat, query) =>
          chats.listEntries(chatbot, chat, { ...query, orderBy: thenIdAscending(query) }),
      },
    }),
  },
  {
    name: "absent names and user references come last in descending order too",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listChats: (chatbot, query) => {
          const [{ descending, field }] = query.orderBy;
          if (!descending || (field !== "name" && field !== "userRef")) {
            return chats.listChats(chatbot, query);
          }
          return Effect.map(chats.listChats(chatbot, { ...query, ...whole }), ({ items }) => {
            const present = items.filter((chat) => chat[field] !== null);
            const absent = items.filter((chat) => chat[field] === null);
            return cut([...present, ...absent], query);
          });
        },
      },
    }),
  },
  {
    name: "text sorts by UTF-16 code units",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listChats: (chatbot, query) => {
          const [{ descending, field }] = query.orderBy;
          if (field !== "name" && field !== "userRef") return chats.listChats(chatbot, query);
          return Effect.map(chats.listChats(chatbot, { ...query, ...whole }), ({ items }) =>
            cut(
              byCodeUnits(items, (chat) => chat[field], descending),
              query,
            ),
          );
        },
        listEntries: (chatbot, chat, query) => {
          const [{ descending, field }] = query.orderBy;
          if (field !== "question" && field !== "answer" && field !== "moderation") {
            return chats.listEntries(chatbot, chat, query);
          }
          return Effect.map(chats.listEntries(chatbot, chat, { ...query, ...whole }), ({ items }) =>
            cut(
              byCodeUnits(items, (entry) => entry[field], descending),
              query,
            ),
          );
        },
      },
    }),
  },
  {
    name: "search compares lower-cased text without normalising it",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listChats: (chatbot, query) => {
          const { search } = query;
          if (search === null || search === "") return chats.listChats(chatbot, query);
          return searched(
            chats,
            chatbot,
            query,
            ({ name }) => name?.toLowerCase().includes(search.toLowerCase()) ?? false,
          );
        },
      },
    }),
  },
  {
    name: "an empty search leaves out the chats without a name",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listChats: (chatbot, query) =>
          query.search === ""
            ? searched(chats, chatbot, query, ({ name }) => name !== null)
            : chats.listChats(chatbot, query),
      },
    }),
  },
  {
    name: "the total of a history filtered by id is that of the whole history",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listEntries: Effect.fnUntraced(function* (chatbot, chat, query) {
          const { total } = yield* chats.listEntries(chatbot, chat, { ...query, id: null });
          return { ...(yield* chats.listEntries(chatbot, chat, query)), total };
        }),
      },
    }),
  },
  {
    name: "the total of all chats still counts those that were erased",
    break: ({ archive, chats, turns }, memory) => ({
      turns,
      archive: {
        ...archive,
        erase: (chatbot, which) =>
          Effect.tap(archive.erase(chatbot, which), (erased) => {
            const tenant = memory.tenant(chatbot);
            return Effect.sync(() => uncounted.set(tenant, (uncounted.get(tenant) ?? 0) + erased));
          }),
      },
      chats: {
        ...chats,
        listChats: (chatbot, query) =>
          Effect.map(chats.listChats(chatbot, query), ({ items, total }) => {
            const filtered = query.id !== null || query.userRef !== null || !!query.search;
            const extra = filtered ? 0 : (uncounted.get(memory.tenant(chatbot)) ?? 0);
            return { items, total: total + extra };
          }),
      },
    }),
  },
  {
    name: "of chats created together only the last gets its hello entry",
    break: ({ chats, ...others }) => {
      let gathered = 0;
      return {
        ...others,
        chats: {
          ...chats,
          createChat: (chatbot, chat, retryKey) =>
            Effect.suspend(() => {
              gathered++;
              return later(() => {
                const helloMessage = gathered > 1 ? null : chat.helloMessage;
                return chats.createChat(chatbot, { ...chat, helloMessage }, retryKey);
              }).pipe(Effect.ensuring(Effect.sync(() => gathered--)));
            }),
        },
      };
    },
  },
  {
    name: "ids of chats come from a sequence that each of two connections caches a part of",
    break: (stores, memory) => {
      let underWay = 0;
      let cached: ReadonlyArray<Array<number>> | undefined;
      const part = () => Array.from({ length: 32 }, () => memory.next("chat"));
      const chats = makeChatStore({
        ...memory,
        addChat: (tenant, chat, now) => {
          cached ??= [part(), part()];
          const ids = cached[underWay > 1 ? 1 : 0]!;
          if (ids.length === 0) ids.push(...part());
          while (tenant.byId.has(ids[0]!)) ids.splice(0, 1, memory.next("chat"));
          const { id, ...stored } = memory.addChat(tenant, chat, now);
          tenant.byId.delete(id);
          tenant.chats.pop();
          const moved = { ...stored, id: ids.shift()! };
          insert(tenant, moved);
          return moved;
        },
      });
      const createChat: typeof chats.createChat = (...request) =>
        Effect.suspend(() => {
          underWay++;
          return later(() => chats.createChat(...request)).pipe(
            Effect.ensuring(Effect.sync(() => underWay--)),
          );
        });
      return { ...stores, chats: { ...chats, createChat } };
    },
  },
  {
    name: "a name is cut at 255 UTF-16 code units",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        createChat: (chatbot, chat, retryKey) => {
          const name = chat.name?.slice(0, 255).toWellFormed() ?? null;
          return chats.createChat(chatbot, { ...chat, name }, retryKey);
        },
      },
    }),
  },
  {
    name: "lists tell the time of a chat in whole seconds, its creation does not",
    break: ({ chats, ...others }) => ({
      ...others,
      chats: {
        ...chats,
        listChats: (chatbot, query) =>
          Effect.map(chats.listChats(chatbot, query), ({ items, total }) => ({
            total,
            items: items.map((chat) => {
              const seconds = Math.floor(chat.createTime.getTime() / 1000);
              return { ...chat, createTime: new Date(seconds * 1000) };
            }),
          })),
      },
    }),
  },
  {
    name: "creates with the same new retry key that overlap each make a chat",
    break: ({ chats, ...others }, memory) => ({
      ...others,
      chats: {
        ...chats,
        createChat: (chatbot, chat, retryKey) =>
          Effect.suspend(() => {
            const { requests } = memory.tenant(chatbot);
            if (retryKey === null || requests.has(retryKey.key)) {
              return chats.createChat(chatbot, chat, retryKey);
            }
            return later(() => {
              requests.delete(retryKey.key);
              return chats.createChat(chatbot, chat, retryKey);
            });
          }),
      },
    }),
  },
  {
    name: "a retry key that another chatbot used is refused",
    break: ({ archive, chats, turns }, memory) => {
      const claim = (chatbot: number, retryKey: RetryKey | null) =>
        Effect.suspend(() => {
          if (retryKey === null) return Effect.void;
          const { key } = retryKey;
          const owners = keyOwners.get(memory) ?? new Map<string, number>();
          keyOwners.set(memory, owners);
          const owner = owners.get(key) ?? chatbot;
          if (owner !== chatbot && memory.tenant(owner).requests.has(key)) {
            return Effect.fail(new RetryKeyReused({ key }));
          }
          owners.set(key, chatbot);
          return Effect.void;
        });
      return {
        archive,
        chats: {
          ...chats,
          createChat: (chatbot, chat, retryKey) =>
            Effect.andThen(claim(chatbot, retryKey), chats.createChat(chatbot, chat, retryKey)),
        },
        turns: {
          ...turns,
          take: (chatbot, chat, retryKey) =>
            Effect.andThen(claim(chatbot, retryKey), turns.take(chatbot, chat, retryKey)),
        },
      };
    },
  },
  {
    name: "a replay prolongs the life of its retry key",
    break: ({ archive, chats, turns }, memory) => {
      const prolong = (chatbot: number, retryKey: RetryKey | null) =>
        atPresent((now) => {
          const { requests } = memory.tenant(chatbot);
          const known = retryKey === null ? undefined : requests.get(retryKey.key);
          if (retryKey === null || known === undefined) return Effect.void;
          requests.delete(retryKey.key);
          requests.set(retryKey.key, { ...known, madeAt: now });
          return Effect.void;
        });
      return {
        archive,
        chats: {
          ...chats,
          createChat: (chatbot, chat, retryKey) =>
            Effect.tap(chats.createChat(chatbot, chat, retryKey), ({ replayed }) =>
              replayed ? prolong(chatbot, retryKey) : Effect.void,
            ),
        },
        turns: {
          ...turns,
          take: (chatbot, chat, retryKey) =>
            Effect.tap(turns.take(chatbot, chat, retryKey), ({ _tag }) =>
              _tag === "Done" ? prolong(chatbot, retryKey) : Effect.void,
            ),
        },
      };
    },
  },
  {
    name: "a request that was answered before waits for the chat's present turn",
    break: ({ turns, ...others }, memory) => ({
      ...others,
      turns: {
        ...turns,
        take: (chatbot, chat, retryKey) =>
          atPresent((now) => {
            const forMillis = (storedChat(memory, chatbot, chat)?.turn?.until ?? now) - now;
            return forMillis > 0
              ? Effect.succeed({ _tag: "Held" as const, forMillis, by: "chat" as const })
              : turns.take(chatbot, chat, retryKey);
          }),
      },
    }),
  },
  {
    name: "an append after another took the turn is stored once that turn has ended",
    break: ({ turns, ...others }, memory) => ({
      ...others,
      turns: {
        ...turns,
        append: (turn, entry) =>
          Effect.suspend(() => {
            const chat = storedChat(memory, turn.chatbot, turn.chat);
            if (chat?.turn === null) chat.turn = { turn: turn.id, until: 0 };
            return turns.append(turn, entry);
          }),
      },
    }),
  },
  {
    name: "the release of a lost turn ends the turn of who took it",
    break: ({ turns, ...others }, memory) => ({
      ...others,
      turns: {
        ...turns,
        release: (turn) =>
          Effect.tap(turns.release(turn), () =>
            Effect.sync(() => {
              const chat = storedChat(memory, turn.chatbot, turn.chat);
              if (chat !== undefined) chat.turn = null;
            }),
          ),
      },
    }),
  },
  {
    name: "an append to a chat that was erased meanwhile brings the chat back",
    break: ({ turns, ...others }, memory) => ({
      ...others,
      turns: {
        ...turns,
        append: (turn, entry) =>
          atPresent((now) => {
            const { chat: id, chatbot, retryKey } = turn;
            const tenant = memory.tenant(chatbot);
            if (id !== null && !tenant.byId.has(id)) {
              const holder = { turn: turn.id, until: now };
              const row = { id, name: null, userRef: null, createTime: new Date(now) };
              insert(tenant, { ...row, folded: null, entries: [], ...withoutTurn, turn: holder });
              if (retryKey !== null && !tenant.requests.has(retryKey.key)) {
                rememberRequest(tenant, retryKey, now, {
                  turn: turn.id,
                  holder,
                  chat: id,
                  entry: null,
                });
              }
            }
            return turns.append(turn, entry);
          }),
      },
    }),
  },
  {
    name: "earlier entries of a long chat are its oldest instead of the next older",
    break: ({ turns, ...others }, memory) => ({
      ...others,
      turns: {
        ...turns,
        earlier: ({ chat, chatbot }, before) =>
          Effect.sync(() => {
            const entries = storedChat(memory, chatbot, chat)?.entries ?? [];
            const older = entries.filter(({ id }) => id < before);
            return older.slice(0, turnEntries).reverse().map(entryOf);
          }),
      },
    }),
  },
  {
    name: "usage adds up models of the same name whoever provides them",
    break: ({ archive, ...others }) => ({
      ...others,
      archive: {
        ...archive,
        usage: (chatbot, since) =>
          Effect.map(archive.usage(chatbot, since), (sums) => {
            const byModel = new Map<string, UsageSum>();
            for (const sum of sums) {
              const known = byModel.get(sum.model);
              byModel.set(sum.model, {
                provider: known?.provider ?? sum.provider,
                model: sum.model,
                answers: sum.answers + (known?.answers ?? 0),
                attempts: sum.attempts + (known?.attempts ?? 0),
                promptTokens: sum.promptTokens + (known?.promptTokens ?? 0),
                completionTokens: sum.completionTokens + (known?.completionTokens ?? 0),
              });
            }
            return [...byModel.values()];
          }),
      },
    }),
  },
  {
    name: "an export reads the entries of a chat when it gets there",
    break: ({ archive, ...others }, memory) => ({
      ...others,
      archive: {
        ...archive,
        export: (chatbot) =>
          Stream.suspend(() =>
            Stream.fromIterable([...memory.tenant(chatbot).chats], { chunkSize: 1 }).pipe(
              Stream.flatMap((chat) =>
                Stream.fromIterable<ArchiveRecord>([
                  { _tag: "Chat", chat: chatOf(chat) },
                  ...chat.entries.map((stored) => ({
                    _tag: "Entry" as const,
                    entry: entryOf(stored),
                    usage: stored.usage,
                  })),
                ]),
              ),
            ),
          ),
      },
    }),
  },
  {
    name: "an import does not move the sequence of the entries past its own",
    break: (stores, memory) => ({
      ...stores,
      archive: makeChatArchive({
        ...memory,
        moveTo: (kind, id) => {
          if (kind === "chat") memory.moveTo(kind, id);
        },
      }),
    }),
  },
  {
    name: "an import that fails keeps what came before the failure",
    break: ({ archive, ...others }) => ({
      ...others,
      archive: {
        ...archive,
        import: (chatbot, records) =>
          Effect.suspend(() => {
            const seen: Array<ArchiveRecord> = [];
            // Records may be seen in advance of those that were refused.
            const keep = (count: number): Effect.Effect<unknown> =>
              count === 0
                ? Effect.void
                : archive
                    .import(chatbot, Stream.fromIterable(seen.slice(0, count)))
                    .pipe(Effect.catch(() => keep(count - 1)));
            return archive
              .import(
                chatbot,
                Stream.tap(records, (record) => Effect.sync(() => seen.push(record))),
              )
              .pipe(Effect.tapError(() => keep(seen.length)));
          }),
      },
    }),
  },
  {
    name: "chats without an entry are never idle",
    break: ({ archive, ...others }, memory) => ({
      ...others,
      archive: {
        ...archive,
        erase: (chatbot, which) =>
          Effect.suspend(() => {
            if (which._tag !== "IdleSince") return archive.erase(chatbot, which);
            const idle = memory.tenant(chatbot).chats.filter(({ entries }) => {
              const last = entries.at(-1);
              return last !== undefined && last.createTime < which.limit;
            });
            const erased = Effect.forEach(idle, ({ id }) =>
              archive.erase(chatbot, { _tag: "Chat", id }),
            );
            return Effect.map(erased, ({ length }) => length);
          }),
      },
    }),
  },
];
