/**
 * Faults that strangers looked for where a kit that had met hundreds of them would still not look.
 */
import { inOrder, type Usage } from "@parley/core";
import { Clock, Effect, Stream } from "effect";
import { entryOf } from "../../src/MemoryChatStore.ts";
import { withArchive, withErasures, withTurns, type Fault } from "./Faults.ts";

const withoutAttempts = (usage: Usage | null) => (usage?.attempts === 0 ? null : usage);

export const farFaults: ReadonlyArray<Fault> = [
  // ChatArchive.import: "Others may write meanwhile".
  {
    name: "an import forgets the keys of asks under way that have no chat yet",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.tap(stores.archive.import(chatbot, records), () =>
            Effect.sync(() => {
              const { requests } = memory.tenant(chatbot);
              for (const [key, { chat }] of requests) if (chat === null) requests.delete(key);
            }),
          ),
      }),
  },

  // ChatArchive.import: "whole or not at all".
  {
    name: "after an import that failed times go on from those that it had read",
    break: (stores, memory) =>
      withArchive(stores, {
        import: (chatbot, records) =>
          Effect.suspend(() => {
            let latest = -Infinity;
            const noted = Stream.tap(inOrder(records), (record) =>
              Effect.sync(() => {
                if (record._tag === "Chat") latest = record.chat.createTime.getTime();
              }),
            );
            return Effect.tapError(stores.archive.import(chatbot, noted), () =>
              Effect.sync(() => {
                const tenant = memory.tenant(chatbot);
                tenant.lastTime = Math.max(tenant.lastTime, latest);
              }),
            );
          }),
      }),
  },

  // ArchiveRecord: an entry has the usage that it was stored with.
  {
    name: "a usage without attempts is kept as none",
    break: (stores) =>
      withTurns(
        withArchive(stores, {
          import: (chatbot, records) =>
            stores.archive.import(
              chatbot,
              Stream.map(records, (record) =>
                record._tag === "Chat"
                  ? record
                  : { ...record, usage: withoutAttempts(record.usage) },
              ),
            ),
        }),
        {
          append: (turn, entry) =>
            stores.turns.append(turn, { ...entry, usage: withoutAttempts(entry.usage) }),
        },
      ),
  },

  // Erasable: "Chats that were made before the limit and have no entry since".
  {
    name: "a chat counts as used at the time of its last append, also when its entries are of the future",
    break: (stores, memory) => {
      const used = new Map<string, number>();
      return withTurns(
        withArchive(stores, {
          erase: (chatbot, which) =>
            which._tag !== "IdleSince"
              ? stores.archive.erase(chatbot, which)
              : Effect.suspend(() => {
                  const idle = memory
                    .tenant(chatbot)
                    .chats.filter(({ createTime, entries, id }) => {
                      const last = (entries.at(-1)?.createTime ?? createTime).getTime();
                      return (used.get(`${chatbot}/${id}`) ?? last) < which.limit.getTime();
                    });
                  return Effect.map(
                    Effect.forEach(idle, ({ id }) =>
                      stores.archive.erase(chatbot, { _tag: "Chat", id }),
                    ),
                    ({ length }) => length,
                  );
                }),
          import: (chatbot, records) =>
            Effect.tap(stores.archive.import(chatbot, records), () =>
              Effect.sync(() => {
                for (const { id } of memory.tenant(chatbot).chats) used.delete(`${chatbot}/${id}`);
              }),
            ),
        }),
        {
          append: (turn, entry) =>
            Effect.tap(stores.turns.append(turn, entry), ({ chatId }) =>
              Effect.map(Clock.currentTimeMillis, (now) =>
                used.set(`${turn.chatbot}/${chatId}`, now),
              ),
            ),
        },
      );
    },
  },

  // TurnStore.append: "fails without a trace when another took the turn".
  {
    name: "an append looks whose the turn is before it writes, and not when it writes",
    break: (stores, memory) =>
      withTurns(stores, {
        take: (...args) => Effect.andThen(Effect.yieldNow, stores.turns.take(...args)),
        append: (turn, entry) =>
          Effect.suspend(() => {
            const chat = memory.tenant(turn.chatbot).byId.get(turn.chat ?? 0);
            const append = stores.turns.append(turn, entry);
            if (chat?.turn?.turn !== turn.id || turn.retryKey !== null) return append;
            return Effect.yieldNow.pipe(
              Effect.andThen(Effect.yieldNow),
              Effect.andThen(append),
              Effect.catchTag("TurnLost", (lost) =>
                // Its end by another append is noticed.
                chat.turn === null
                  ? Effect.fail(lost)
                  : Effect.map(Clock.currentTimeMillis, (now) =>
                      entryOf(memory.addEntry(chat, entry, now)),
                    ),
              ),
            );
          }),
      }),
  },

  // ChatArchive.erase: "everything that refers to them".
  {
    name: "an erasure forgets keys that were released in the chat, and answered in another since",
    break: (stores, memory) => {
      const keysOf = new Map<string, Set<string>>();
      const noting = withTurns(stores, {
        take: (chatbot, chat, retryKey) =>
          Effect.tap(stores.turns.take(chatbot, chat, retryKey), ({ _tag }) =>
            Effect.sync(() => {
              if (_tag !== "Turn" || chat === null || retryKey === null) return;
              const keys = keysOf.get(`${chatbot}/${chat}`) ?? new Set();
              keysOf.set(`${chatbot}/${chat}`, keys.add(retryKey.key));
            }),
          ),
      });
      return withErasures(noting, memory, (chatbot, erased) => {
        for (const id of erased) {
          for (const key of keysOf.get(`${chatbot}/${id}`) ?? []) {
            memory.tenant(chatbot).requests.delete(key);
          }
          keysOf.delete(`${chatbot}/${id}`);
        }
      });
    },
  },
];
