/**
 * First drafts of a store, each with one bug.
 */
import type { Turn } from "@parley/core";
import { Effect, PubSub, Stream } from "effect";
import { inLine } from "./Line.ts";
import { shared, withArchive, withChats, withTurns, type Fault } from "./Faults.ts";
import { atPresent, type Memory } from "../../src/Memory.ts";

/** The stored chat that a turn is of, if it is of one and that is there. */
const chatOfTurn = (memory: Memory, { chat, chatbot }: Pick<Turn, "chat" | "chatbot">) =>
  chat === null ? undefined : memory.tenant(chatbot).byId.get(chat);

// ChatStore.createChat: "a known retry key gives the chat it made, for 24 hours from then on."
const replayProlongs: Fault = {
  name: "a replayed creation makes its retry key known for another 24 hours",
  break: (stores, memory) =>
    withChats(stores, {
      createChat: (chatbot, chat, retryKey) =>
        Effect.tap(stores.chats.createChat(chatbot, chat, retryKey), ({ replayed }) =>
          atPresent((now) => {
            const { requests } = memory.tenant(chatbot);
            const known = retryKey === null ? undefined : requests.get(retryKey.key);
            if (replayed && known !== undefined) {
              // Deleted first, for the oldest are looked at first.
              requests.delete(retryKey!.key);
              requests.set(retryKey!.key, { ...known, madeAt: now });
            }
            return Effect.void;
          }),
        ),
    }),
};

// ChatQuery.search: "A literal, case-insensitive part of the name" (and only null or "" filters nothing).
const idWithoutSearch: Fault = {
  name: "a list of chats with an id looks that row up and forgets the search",
  break: (stores) =>
    withChats(stores, {
      listChats: (chatbot, query) =>
        stores.chats.listChats(chatbot, query.id === null ? query : { ...query, search: null }),
    }),
};

// ListQuery: "Rows that tie in every field follow `id`"; 4.3: "sort by, applied in the given order".
const timeAlone: Fault = {
  name: "a history by _createTime is read in the order of ids, so that further fields do not order ties",
  break: (stores) =>
    withChats(stores, {
      listEntries: (chatbot, chat, query) => {
        const [first] = query.orderBy;
        const orderBy = first.field === "_createTime" ? ([first] as const) : query.orderBy;
        return stores.chats.listEntries(chatbot, chat, { ...query, orderBy });
      },
    }),
};

// ChatNotFound: "No chat of this chatbot has that id."
const remembersChats: Fault = {
  name: "an instance that read a history takes the chat for existing after another instance erased it",
  break: (stores) => {
    const existing = new Set<string>();
    const withCache = withChats(stores, {
      listEntries: (chatbot, chat, query) =>
        stores.chats.listEntries(chatbot, chat, query).pipe(
          Effect.tap(() => Effect.sync(() => existing.add(`${chatbot}/${chat}`))),
          Effect.catchTag("ChatNotFound", (error) =>
            existing.has(`${chatbot}/${chat}`)
              ? Effect.succeed({ items: [], total: 0 })
              : Effect.fail(error),
          ),
        ),
    });
    return withArchive(withCache, {
      erase: (chatbot, which) =>
        Effect.tap(stores.archive.erase(chatbot, which), () => Effect.sync(() => existing.clear())),
    });
  },
};

// TurnStore.renew: "Holds the turn for another lease", which is of the chat "or of the retry key".
const renewsOne: Fault = {
  name: "a renewal of a turn of a chat does not renew its retry key",
  break: (stores, memory) =>
    withTurns(stores, {
      renew: (turn) =>
        Effect.suspend(() => {
          const { requests } = memory.tenant(turn.chatbot);
          const key = turn.chat === null ? undefined : turn.retryKey?.key;
          const before = key === undefined ? undefined : requests.get(key);
          return Effect.tap(stores.turns.renew(turn), () =>
            Effect.sync(() => {
              if (before !== undefined) requests.set(key!, before);
            }),
          );
        }),
    }),
};

// TurnStore.append: "fails without a trace when another took the turn".
const takenAndEnded: Fault = {
  name: "a turn that another took is appended in all the same, once the other has ended",
  break: (stores, memory) => {
    const ended = endedTurns(memory);
    const ends = (turn: Turn) => Effect.sync(() => ended.add(turn.id));
    return withTurns(stores, {
      append: (turn, entry) =>
        Effect.suspend(() => {
          const chat = chatOfTurn(memory, turn);
          if (chat?.turn === null && !ended.has(turn.id)) chat.turn = { turn: turn.id, until: 0 };
          return Effect.tap(stores.turns.append(turn, entry), ends(turn));
        }),
      release: (turn) => Effect.tap(stores.turns.release(turn), ends(turn)),
    });
  },
};
const endedTurns = shared(() => new Set<string>());

// TurnStore.release: "harmless when it was lost."
const releasesForeignKey: Fault = {
  name: "releasing a lost turn forgets the retry key that another turn works on by now",
  break: (stores, memory) =>
    withTurns(stores, {
      release: (turn) =>
        Effect.tap(stores.turns.release(turn), () =>
          Effect.sync(() => {
            const { requests } = memory.tenant(turn.chatbot);
            const key = turn.retryKey?.key ?? "";
            if (requests.get(key)?.chat === null) requests.delete(key);
          }),
        ),
    }),
};

// TurnStore.leave: "so that whoever waits behind it goes next at once".
const leaveStays: Fault = {
  name: "leave keeps the instance's place, so that who waits behind it is held up for two seconds",
  break: (stores) => withTurns(stores, { leave: () => Effect.void }),
};

// TurnStore.take: "after that it has lost its place".
const lateKeepPlaces: Fault = {
  name: "an instance that did not come in time keeps its place for the turn after",
  break: (stores, memory) => inLine(stores, memory, "keeps late"),
};

// TurnStore: "It never waits"; `freed`: "may miss some".
const hintsBlock: Fault = {
  name: "a reader of freed that does not keep up makes appending and releasing wait",
  break: (stores) => {
    const hints = Effect.runSync(
      PubSub.bounded<{ readonly chatbot: number; readonly chat: number }>(32),
    );
    const hint = ({ chat, chatbot }: Turn) =>
      chat === null ? Effect.void : PubSub.publish(hints, { chatbot, chat });
    return withTurns(stores, {
      append: (turn, entry) => Effect.tap(stores.turns.append(turn, entry), hint(turn)),
      release: (turn) => Effect.tap(stores.turns.release(turn), hint(turn)),
      freed: Stream.fromPubSub(hints),
    });
  },
};

// Erasable, IdleSince: "Chats that were made before the limit and have no entry since."
const wholeSeconds: Fault = {
  name: "idle chats are told by whole seconds, so that those used in the limit's second are kept",
  break: (stores) =>
    withArchive(stores, {
      erase: (chatbot, which) => {
        if (which._tag !== "IdleSince") return stores.archive.erase(chatbot, which);
        const limit = new Date(Math.floor(which.limit.getTime() / 1000) * 1000);
        return stores.archive.erase(chatbot, { ...which, limit });
      },
    }),
};

// ChatArchive.erase: "Erases the chats with everything that refers to them".
const keysOfAsksStay: Fault = {
  name: "erasing one chat leaves the retry keys of the questions that were asked in it",
  break: (stores, memory) =>
    withArchive(stores, {
      erase: (chatbot, which) =>
        Effect.suspend(() => {
          const { requests } = memory.tenant(chatbot);
          const asked = [...requests].filter(
            ([, { chat, entry }]) => which._tag === "Chat" && chat === which.id && entry !== null,
          );
          return Effect.tap(stores.archive.erase(chatbot, which), () =>
            Effect.sync(() => {
              // Their entry is gone with the chat, but they are not.
              for (const [key, request] of asked) requests.set(key, { ...request, entry: null });
            }),
          );
        }),
    }),
};

// TurnStore.append: "fails without a trace when another took the turn" (only); take: "(also while that one runs)".
const sweepsRunning: Fault = {
  name: "compacting after an erasure also sweeps away the retry keys of requests that run",
  break: (stores, memory) => {
    const erasedFrom = new Set<number>();
    return withArchive(stores, {
      erase: (chatbot, which) =>
        Effect.tap(stores.archive.erase(chatbot, which), () =>
          Effect.sync(() => erasedFrom.add(chatbot)),
        ),
      compact: (pace) =>
        Effect.tap(stores.archive.compact(pace), () =>
          Effect.sync(() => {
            for (const chatbot of erasedFrom) {
              const { requests } = memory.tenant(chatbot);
              for (const [key, { chat }] of requests) if (chat === null) requests.delete(key);
            }
            erasedFrom.clear();
          }),
        ),
    });
  },
};

export const draftFaults: ReadonlyArray<Fault> = [
  replayProlongs,
  idWithoutSearch,
  timeAlone,
  remembersChats,
  renewsOne,
  takenAndEnded,
  releasesForeignKey,
  leaveStays,
  lateKeepPlaces,
  hintsBlock,
  wholeSeconds,
  keysOfAsksStay,
  sweepsRunning,
];
