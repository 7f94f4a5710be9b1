/**
 * More stores that break one promise each, written from the ports and the specification alone, by someone
 * who had not seen the checks.
 */
import {
  turnEntries,
  type ArchiveRecord,
  type Erasable,
  type ListQuery,
  type UsageSum,
} from "@parley/core";
import { Clock, Effect, Stream } from "effect";
import { makeChatArchive } from "../../src/MemoryChatArchive.ts";
import { chatOf, entryOf } from "../../src/MemoryChatStore.ts";
import type { Memory } from "../../src/Memory.ts";
import type { StoredChat } from "../../src/Tenant.ts";
import {
  forgetKeys,
  shared,
  withArchive,
  withChats,
  withErasures,
  withTurns,
  type Fault,
  type Stores,
} from "./Faults.ts";

type Order<Field extends string> = ListQuery<Field>["orderBy"];

/** Both lists, with another order than was asked for. */
const withOrder = (
  stores: Stores,
  change: <Field extends string>(orderBy: Order<Field | "id">) => Order<Field | "id">,
): Stores =>
  withChats(stores, {
    listChats: (chatbot, query) =>
      stores.chats.listChats(chatbot, { ...query, orderBy: change(query.orderBy) }),
    listEntries: (chatbot, chat, query) =>
      stores.chats.listEntries(chatbot, chat, { ...query, orderBy: change(query.orderBy) }),
  });

/** An erasure that takes other chats, too. */
const erasingAlso = (
  stores: Stores,
  memory: Memory,
  others: (which: Erasable) => ((chat: StoredChat) => boolean) | null,
): Stores =>
  withArchive(stores, {
    erase: (chatbot, which) =>
      Effect.gen(function* () {
        let erased = yield* stores.archive.erase(chatbot, which);
        const isMeant = others(which);
        if (isMeant === null) return erased;
        for (const { id } of memory.tenant(chatbot).chats.filter(isMeant)) {
          erased += yield* stores.archive.erase(chatbot, { _tag: "Chat", id });
        }
        return erased;
      }),
  });

/** Erased chats that the counter of the chatbot's chats still holds. */
const uncounted = shared(() => new Map<number, number>());
/** Chatbots that used a retry key. */
const keyed = shared(() => new Set<number>());

export const blindFaults: ReadonlyArray<Fault> = [
  {
    name: "With several sort fields, ties follow id in the direction of the first field, not of the last",
    break: (stores) =>
      withOrder(stores, (orderBy) =>
        orderBy.length === 1 || orderBy.some(({ field }) => field === "id")
          ? orderBy
          : [...orderBy, { field: "id", descending: orderBy[0].descending }],
      ),
  },
  {
    name: "A list by _createTime is read in the order of ids, so rows of one millisecond ignore the further sort fields",
    break: (stores) =>
      withOrder(stores, (orderBy) =>
        orderBy[0].field === "_createTime"
          ? [{ field: "id", descending: orderBy[0].descending }]
          : orderBy,
      ),
  },
  {
    name: "Search lower-cases its text as a whole, so a capital sigma at the end of a word becomes a final one and finds nothing",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) =>
          stores.chats.listChats(chatbot, {
            ...query,
            search: query.search === null ? null : query.search.normalize("NFKC").toLowerCase(),
          }),
      }),
  },
  {
    name: "The filter for an empty userRef filters nothing, as if it were absent",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) =>
          stores.chats.listChats(chatbot, {
            ...query,
            userRef: query.userRef === "" ? null : query.userRef,
          }),
      }),
  },
  {
    name: "A page of chats in the second half is read from the other end with the full limit, so a last page that is not full repeats rows of the page before",
    break: (stores) =>
      withChats(stores, {
        listChats: (chatbot, query) =>
          Effect.gen(function* () {
            const asked = yield* stores.chats.listChats(chatbot, query);
            const { items, total } = asked;
            const { limit, page } = query;
            const isLate = (page - 1) * limit > total / 2;
            if (!isLate || items.length === 0 || items.length === limit) return asked;
            const before = yield* stores.chats.listChats(chatbot, { ...query, page: page - 1 });
            return { items: [...before.items, ...items].slice(-limit), total };
          }),
      }),
  },
  {
    name: "An instance remembers which chats exist, so the history of a chat that another instance erased is an empty page instead of ChatNotFound",
    break: (stores) => {
      const seen = new Set<string>();
      return {
        ...stores,
        chats: {
          ...stores.chats,
          listEntries: (chatbot, chat, query) =>
            stores.chats.listEntries(chatbot, chat, query).pipe(
              Effect.tap(() => Effect.sync(() => seen.add(`${chatbot}/${chat}`))),
              Effect.catchTag("ChatNotFound", (error) =>
                seen.has(`${chatbot}/${chat}`)
                  ? Effect.succeed({ items: [], total: 0 })
                  : Effect.fail(error),
              ),
            ),
        },
        archive: {
          ...stores.archive,
          erase: (chatbot, which) =>
            Effect.tap(stores.archive.erase(chatbot, which), () => Effect.sync(() => seen.clear())),
        },
      };
    },
  },
  {
    name: "The total of the unfiltered list of chats is a counter that an erasure lowers by one, however many chats it erases",
    break: (stores, memory) => ({
      ...stores,
      chats: {
        ...stores.chats,
        listChats: (chatbot, query) =>
          Effect.map(stores.chats.listChats(chatbot, query), (page) =>
            query.id === null && query.userRef === null && (query.search ?? "") === ""
              ? { ...page, total: page.total + (uncounted(memory).get(chatbot) ?? 0) }
              : page,
          ),
      },
      archive: {
        ...stores.archive,
        erase: (chatbot, which) =>
          Effect.tap(stores.archive.erase(chatbot, which), (erased) =>
            Effect.sync(() => {
              const counts = uncounted(memory);
              if (erased > 1) counts.set(chatbot, (counts.get(chatbot) ?? 0) + erased - 1);
            }),
          ),
      },
    }),
  },
  {
    name: "Every replay of a creation keeps its retry key for another 24 hours",
    break: (stores, memory) =>
      withChats(stores, {
        createChat: (chatbot, chat, retryKey) =>
          Effect.gen(function* () {
            const created = yield* stores.chats.createChat(chatbot, chat, retryKey);
            const now = yield* Clock.currentTimeMillis;
            const { requests } = memory.tenant(chatbot);
            const known = retryKey === null ? undefined : requests.get(retryKey.key);
            if (created.replayed && retryKey !== null && known !== undefined) {
              // Deleted first, because the map is ordered by age.
              requests.delete(retryKey.key);
              requests.set(retryKey.key, { ...known, madeAt: now });
            }
            return created;
          }),
      }),
  },
  {
    name: "The userRef of a chat is cut after 60 UTF-16 units, so one of 60 characters beyond the BMP loses half of them",
    break: (stores) =>
      withChats(stores, {
        createChat: (chatbot, chat, retryKey) =>
          stores.chats.createChat(
            chatbot,
            { ...chat, userRef: chat.userRef === null ? null : chat.userRef.slice(0, 60) },
            retryKey,
          ),
      }),
  },
  {
    name: "Renewing a turn prolongs only the chat's lease: its retry key runs out 10 seconds after the take",
    break: (stores, memory) =>
      withTurns(stores, {
        renew: (turn) =>
          Effect.suspend(() => {
            const { requests } = memory.tenant(turn.chatbot);
            const key = turn.retryKey?.key;
            const holder = key === undefined ? undefined : requests.get(key)?.holder;
            return Effect.tap(stores.turns.renew(turn), (renewed) =>
              Effect.sync(() => {
                const known = key === undefined ? undefined : requests.get(key);
                if (renewed && key !== undefined && known !== undefined && holder !== undefined) {
                  requests.set(key, { ...known, holder });
                }
              }),
            );
          }),
      }),
  },
  {
    name: "Earlier entries are looked for among the 20 ids below the given one, so where ids have gaps some are missing",
    break: (stores) =>
      withTurns(stores, {
        earlier: (turn, before) =>
          Effect.map(stores.turns.earlier(turn, before), (entries) =>
            entries.filter(({ id }) => id >= before - turnEntries),
          ),
      }),
  },
  {
    name: "An append that fails with TurnLost in a chat to be made leaves that chat behind, empty",
    break: (stores, memory) =>
      withTurns(stores, {
        append: (turn, entry) =>
          Effect.tapError(stores.turns.append(turn, entry), (error) =>
            Effect.map(Clock.currentTimeMillis, (now) => {
              if (error._tag !== "TurnLost" || turn.chat !== null) return;
              memory.addChat(memory.tenant(turn.chatbot), { name: null, userRef: null }, now);
            }),
          ),
      }),
  },
  {
    name: "Releasing the turn of a chat to be made does not forget its retry key, which stays held until the lease is over",
    break: (stores) =>
      withTurns(stores, {
        release: (turn) => (turn.chat === null ? Effect.void : stores.turns.release(turn)),
      }),
  },
  {
    name: "An append without a retry key is refused only while another holds the turn: who lost it may append once the other is done",
    break: (stores, memory) =>
      withTurns(stores, {
        append: (turn, entry) =>
          Effect.suspend(() => {
            const chat =
              turn.chat === null ? undefined : memory.tenant(turn.chatbot).byId.get(turn.chat);
            if (turn.retryKey === null && chat?.turn === null) {
              chat.turn = { turn: turn.id, until: 0 };
            }
            return stores.turns.append(turn, entry);
          }),
      }),
  },
  {
    name: "An erasure forgets the retry keys of every chatbot whose chat has the id of an erased one",
    break: (stores, memory) => {
      const noted = (chatbot: number, retryKey: unknown) => {
        if (retryKey !== null) keyed(memory).add(chatbot);
      };
      const noting = withTurns(
        withChats(stores, {
          createChat: (chatbot, chat, retryKey) => {
            noted(chatbot, retryKey);
            return stores.chats.createChat(chatbot, chat, retryKey);
          },
        }),
        {
          take: (chatbot, chat, retryKey) => {
            noted(chatbot, retryKey);
            return stores.turns.take(chatbot, chat, retryKey);
          },
        },
      );
      return withErasures(noting, memory, (_, erased) => forgetKeys(memory, keyed(memory), erased));
    },
  },
  {
    name: "Erasing idle chats erases also those whose last entry was stored exactly at the limit",
    break: (stores, memory) =>
      erasingAlso(stores, memory, (which) => {
        if (which._tag !== "IdleSince") return null;
        const limit = which.limit.getTime();
        return ({ createTime, entries }) =>
          createTime.getTime() < limit && entries.at(-1)?.createTime.getTime() === limit;
      }),
  },
  {
    name: "Erasing by userRef takes it for a LIKE pattern, in which _ stands for any character and % for any text",
    break: (stores, memory) =>
      erasingAlso(stores, memory, (which) => {
        if (which._tag !== "UserRef") return null;
        const pattern = which.userRef
          .replaceAll(/[\\^$.*+?()[\]{}|/]/gu, String.raw`\$&`)
          .replaceAll("_", ".")
          .replaceAll("%", ".*");
        const like = new RegExp(`^${pattern}$`, "su");
        return ({ userRef }) => userRef !== null && like.test(userRef);
      }),
  },
  {
    name: "An import moves the sequence of entries past its last entry, not past its highest, which an older chat may hold",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) => {
          let lastEntry = 0;
          const moveTo: Memory["moveTo"] = (kind, id) => {
            if (kind === "entry") lastEntry = id;
            else memory.moveTo(kind, id);
          };
          return Effect.tap(makeChatArchive({ ...memory, moveTo }).import(chatbot, records), () =>
            Effect.sync(() => memory.moveTo("entry", lastEntry)),
          );
        },
      }),
  },
  {
    name: "Usage is grouped by provider/model as one text, so that a slash in either merges two models that differ",
    break: (stores) =>
      withArchive(stores, {
        usage: (chatbot, since) =>
          Effect.map(stores.archive.usage(chatbot, since), (rows) => {
            const sums = new Map<string, UsageSum>();
            for (const row of rows) {
              const name = `${row.provider}/${row.model}`;
              const sum = sums.get(name);
              sums.set(
                name,
                sum === undefined
                  ? row
                  : {
                      ...sum,
                      answers: sum.answers + row.answers,
                      attempts: sum.attempts + row.attempts,
                      promptTokens: sum.promptTokens + row.promptTokens,
                      completionTokens: sum.completionTokens + row.completionTokens,
                    },
              );
            }
            return [...sums.values()];
          }),
      }),
  },
  {
    name: "An export reads the chats at its start but the entries of each only when it gets there, so what is appended or erased meanwhile shows",
    break: (stores, memory) =>
      withArchive(stores, {
        export: (chatbot) =>
          Stream.suspend(() =>
            Stream.fromIterable([...memory.tenant(chatbot).chats]).pipe(
              Stream.flatMap((chat) =>
                Stream.suspend(() => {
                  const now = memory.tenant(chatbot).byId.get(chat.id)?.entries ?? [];
                  return Stream.fromIterable([
                    { _tag: "Chat", chat: chatOf(chat) } as ArchiveRecord,
                    ...now.map((stored): ArchiveRecord => ({
                      _tag: "Entry",
                      entry: entryOf(stored),
                      usage: stored.usage,
                    })),
                  ]);
                }),
              ),
            ),
          ),
      }),
  },
];
