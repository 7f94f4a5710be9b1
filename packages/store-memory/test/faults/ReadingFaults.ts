/**
 * Stores that follow a natural but wrong reading of one sentence of the ports or of the contract.
 */
import { ImportRefused, type ArchiveRecord, type ListQuery } from "@parley/core";
import { Clock, Effect, Option, Stream } from "effect";
import { shared, withArchive, withChats, withTurns, type Fault, type Stores } from "./Faults.ts";
import type { Memory } from "../../src/Memory.ts";
import { chatOf, entryOf } from "../../src/MemoryChatStore.ts";
import { makeTurnStore } from "../../src/MemoryTurnStore.ts";
import type { Held, StoredChat } from "../../src/Tenant.ts";

/** The same stores with an erasure that tells which chats it erased. */
const withErased = (
  stores: Stores,
  memory: Memory,
  tell: (chatbot: number, erased: ReadonlyArray<StoredChat>) => void,
): Stores =>
  withArchive(stores, {
    erase: (chatbot, which) =>
      Effect.suspend(() => {
        const { byId, chats } = memory.tenant(chatbot);
        const before = [...chats];
        return Effect.tap(stores.archive.erase(chatbot, which), () =>
          Effect.sync(() =>
            tell(
              chatbot,
              before.filter(({ id }) => !byId.has(id)),
            ),
          ),
        );
      }),
  });

// "May be any field of the returned chat", "applied in the given order": `id` between two others counts.
const idInTheMiddle: Fault = {
  name: "An id between two other fields to sort by is left to the tie-break at the end",
  break: (stores) => {
    const moved = <Field extends string, Query extends ListQuery<Field>>(query: Query): Query => {
      const [first, ...rest] = query.orderBy;
      const kept = rest.filter(({ field }, at) => field !== "id" || at === rest.length - 1);
      return { ...query, orderBy: [first, ...kept] };
    };
    return withChats(stores, {
      listChats: (chatbot, query) => stores.chats.listChats(chatbot, moved(query)),
      listEntries: (chatbot, chat, query) => stores.chats.listEntries(chatbot, chat, moved(query)),
    });
  },
};

// "One page of the chatbot's chats, and how many match": also after an erasure of several.
const drifts = shared(() => new Map<number, number>());
const statementTrigger: Fault = {
  name: "The counter of chats goes down by one per erasure, however many chats it erased",
  break: (stores, memory) => {
    const drift = drifts(memory);
    const counted = withErased(stores, memory, (chatbot, { length }) => {
      if (length > 1) drift.set(chatbot, (drift.get(chatbot) ?? 0) + length - 1);
    });
    return withChats(counted, {
      listChats: (chatbot, query) =>
        Effect.map(stores.chats.listChats(chatbot, query), ({ items, total }) => {
          const isFiltered = query.id !== null || query.userRef !== null || query.search;
          return { items, total: isFiltered ? total : total + (drift.get(chatbot) ?? 0) };
        }),
    });
  },
};

// "A page past the end: 200, [], the true total": with an id, page 2 is past the end.
const idOnEveryPage: Fault = {
  name: "A list of one id is looked up by the key alone, and gives the row on every page",
  break: (stores) => {
    const looked = <Field extends string, Query extends ListQuery<Field>>(query: Query): Query =>
      query.id === null ? query : { ...query, page: 1 };
    return withChats(stores, {
      listChats: (chatbot, query) => stores.chats.listChats(chatbot, looked(query)),
      listEntries: (chatbot, chat, query) => stores.chats.listEntries(chatbot, chat, looked(query)),
    });
  },
};

// "Whoever takes it by the chat or by the key takes both": a turn that lost its key cannot append.
const keyNotAsked: Fault = {
  name: "An append into a chat checks the turn of the chat, but not that of the retry key",
  break: (stores, memory) =>
    withTurns(stores, {
      append: (turn, entry) =>
        Effect.suspend(() => {
          const { chat, chatbot, id, retryKey } = turn;
          const holder = memory.tenant(chatbot).requests.get(retryKey?.key ?? "")?.holder;
          const isLost = chat !== null && retryKey !== null && holder?.turn !== id;
          return stores.turns.append(isLost ? { ...turn, retryKey: null } : turn, entry);
        }),
    }),
};

// "Done: the retry key's request was answered before"; a release of a turn that ended is harmless.
const settledReleased: Fault = {
  name: "A release after the append forgets the retry key of the stored entry",
  break: (stores, memory) =>
    withTurns(stores, {
      release: (turn) =>
        Effect.suspend(() => {
          const { requests } = memory.tenant(turn.chatbot);
          const key = turn.retryKey?.key ?? "";
          if (requests.get(key)?.turn === turn.id) requests.delete(key);
          return stores.turns.release(turn);
        }),
    }),
};

// "Names this turn, and no other ever": nor one of another instance.
const turnsOfInstance: Fault = {
  name: "Turns are numbered by each instance on its own",
  break: (stores, memory) => {
    let last = 0;
    const next: Memory["next"] = (kind) => (kind === "turn" ? ++last : memory.next(kind));
    return { ...stores, turns: makeTurnStore({ ...memory, next }) };
  },
};

// "Of several instances that were told `Held` by a chat": the place is the instance's.
const placeOfRequest: Fault = {
  name: "The place in line for a chat is a retry key's, so an instance waits for itself",
  break: (stores, memory) => {
    const line = new Map<string, { readonly who: string; readonly until: number }>();
    return withTurns(stores, {
      take: Effect.fnUntraced(function* (chatbot, chat, retryKey) {
        const now = yield* Clock.currentTimeMillis;
        const { byId, requests } = memory.tenant(chatbot);
        const [name, who] = [`${chatbot}/${chat}`, retryKey?.key ?? ""];
        const first = line.get(name);
        const isFree = byId.get(chat ?? 0)?.turn === null && !requests.has(who);
        if (first !== undefined && first.who !== who && first.until > now && isFree) {
          return { _tag: "Held", forMillis: first.until - now, by: "chat" };
        }
        const taken = yield* stores.turns.take(chatbot, chat, retryKey);
        if (taken._tag === "Turn") line.delete(name);
        const waits = taken._tag === "Held" && taken.by === "chat";
        if (waits && (first?.who ?? who) === who) line.set(name, { who, until: now + 2000 });
        return taken;
      }),
      leave: (chatbot, chat) => Effect.sync(() => void line.delete(`${chatbot}/${chat}`)),
    });
  },
};

// "Times are the store's clock's ... and never earlier than the one before": the append makes the chat.
const timeOfTake: Fault = {
  name: "A chat that an append makes has the time of its turn's take",
  break: (stores, memory) => {
    const takenAt = new Map<string, number>();
    return withTurns(stores, {
      take: Effect.fnUntraced(function* (chatbot, chat, retryKey) {
        const taken = yield* stores.turns.take(chatbot, chat, retryKey);
        if (taken._tag === "Turn") takenAt.set(taken.turn.id, yield* Clock.currentTimeMillis);
        return taken;
      }),
      append: (turn, entry) =>
        Effect.tap(stores.turns.append(turn, entry), ({ chatId }) =>
          Effect.sync(() => {
            const made = memory.tenant(turn.chatbot).byId.get(chatId);
            const time = takenAt.get(turn.id);
            if (turn.chat !== null || made === undefined || time === undefined) return;
            Object.assign(made, { createTime: new Date(time) });
          }),
        ),
    });
  },
};

// "What an answer cost; stored with its entry": an entry without usage cost nothing.
const usageStaysBound: Fault = {
  name: "An entry without usage is stored with that of the append before it",
  break: (stores) => {
    let bound: Parameters<Stores["turns"]["append"]>[1]["usage"] = null;
    return withTurns(stores, {
      append: (turn, entry) =>
        Effect.suspend(() => {
          bound = entry.usage ?? bound;
          return stores.turns.append(turn, { ...entry, usage: bound });
        }),
    });
  },
};

// "Refused are a chatbot that has chats": one whose chats were all erased has none.
const softDeletions = shared(() => new Set<number>());
const erasedCount: Fault = {
  name: "An import is refused when the chatbot's chats were all erased before",
  break: (stores, memory) => {
    const deleted = softDeletions(memory);
    const marked = withErased(stores, memory, (chatbot, { length }) => {
      if (length > 0) deleted.add(chatbot);
    });
    return withArchive(marked, {
      import: (chatbot, records) =>
        Effect.suspend(() =>
          deleted.has(chatbot)
            ? Effect.fail(new ImportRefused({ reason: "the chatbot has chats" }))
            : stores.archive.import(chatbot, records),
        ),
    });
  },
};

// "The key of a row is (chatbot, id)", "erases the chats with everything that refers to them", no more.
const knownChatbots = shared(() => new Set<number>());
const othersKeys: Fault = {
  name: "An erasure forgets the retry keys of other chatbots' chats with the same ids",
  break: (stores, memory) => {
    const chatbots = knownChatbots(memory);
    const { chats, turns } = stores;
    const noted = <A>(chatbot: number, effect: A): A => (chatbots.add(chatbot), effect);
    const erasing = withErased(stores, memory, (_, erased) => {
      for (const { requests } of [...chatbots].map(memory.tenant)) {
        for (const [key, request] of requests) {
          if (erased.some(({ id }) => id === request.chat)) requests.delete(key);
        }
      }
    });
    return withTurns(
      withChats(erasing, {
        createChat: (chatbot, chat, key) => noted(chatbot, chats.createChat(chatbot, chat, key)),
      }),
      { take: (chatbot, chat, key) => noted(chatbot, turns.take(chatbot, chat, key)) },
    );
  },
};

// "Which chats to erase", userRef "matches exactly": the empty one is not the absent one.
const emptyIsAbsent: Fault = {
  name: "An erasure of the empty userRef erases the chats without one, too",
  break: (stores, memory) =>
    withArchive(stores, {
      erase: (chatbot, which) => {
        const sound = stores.archive.erase(chatbot, which);
        if (which._tag !== "UserRef" || which.userRef !== "") return sound;
        return Effect.suspend(() => {
          const without = memory.tenant(chatbot).chats.filter(({ userRef }) => userRef === null);
          return Effect.forEach(without, ({ id }) =>
            stores.archive.erase(chatbot, { _tag: "Chat", id }),
          ).pipe(Effect.flatMap(({ length }) => Effect.map(sound, (erased) => erased + length)));
        });
      },
    }),
};

// "Every chat and entry of the chatbot, of one snapshot."
const exportInBatches: Fault = {
  name: "An export reads a hundred chats at a time, each hundred of a snapshot of its own",
  break: (stores, memory) =>
    withArchive(stores, {
      export: (chatbot) =>
        Stream.paginate(0, (after) =>
          Effect.sync(() => {
            const { chats } = memory.tenant(chatbot);
            const some = chats.filter(({ id }) => id > after).slice(0, 100);
            const records = some.flatMap((chat): Array<ArchiveRecord> => [
              { _tag: "Chat", chat: chatOf(chat) },
              ...chat.entries.map((stored): ArchiveRecord => {
                const { usage } = stored;
                return { _tag: "Entry", entry: entryOf(stored), usage };
              }),
            ]);
            const last = some.length < 100 ? Option.none<number>() : Option.some(some.at(-1)!.id);
            return [records, last] as const;
          }),
        ),
    }),
};

// "Erases the chats with everything that refers to them": also who answers at the moment.
const orphanedTurns = shared(() => new Map<string, Held>());
const turnSurvives: Fault = {
  name: "The turn of an erased chat is held of the chat that an import brings back",
  break: (stores, memory) => {
    const orphans = orphanedTurns(memory);
    const erasing = withErased(stores, memory, (chatbot, erased) => {
      for (const { id, turn } of erased) if (turn !== null) orphans.set(`${chatbot}/${id}`, turn);
    });
    return withArchive(erasing, {
      import: (chatbot, records) =>
        Effect.tap(stores.archive.import(chatbot, records), () =>
          Effect.sync(() => {
            for (const chat of memory.tenant(chatbot).chats) {
              chat.turn = orphans.get(`${chatbot}/${chat.id}`) ?? null;
            }
          }),
        ),
    });
  },
};

export const readingFaults: ReadonlyArray<Fault> = [
  idInTheMiddle,
  statementTrigger,
  idOnEveryPage,
  keyNotAsked,
  settledReleased,
  turnsOfInstance,
  placeOfRequest,
  timeOfTake,
  usageStaysBound,
  erasedCount,
  othersKeys,
  emptyIsAbsent,
  exportInBatches,
  turnSurvives,
];
