/**
 * Operators' view of the chats: erasures, exports and imports, and what answers have cost.
 */
import {
  ChatArchive,
  fold,
  ImportRefused,
  inOrder,
  type ArchiveRecord,
  type UsageSum,
} from "@parley/core";
import { Effect, Stream } from "effect";
import { chatOf, entryOf } from "./MemoryChatStore.ts";
import type { Memory } from "./Memory.ts";
import { withoutTurn, type StoredChat } from "./Tenant.ts";

export const makeChatArchive = (memory: Memory): ChatArchive["Service"] => ({
  erase: (chatbot, which) =>
    Effect.sync(() => {
      const tenant = memory.tenant(chatbot);
      const lastUse = ({ createTime, entries }: StoredChat) =>
        entries.at(-1)?.createTime ?? createTime;
      const isMeant = (chat: StoredChat): boolean =>
        which._tag === "Chat"
          ? chat.id === which.id
          : which._tag === "UserRef"
            ? chat.userRef === which.userRef
            : lastUse(chat) < which.limit;
      const kept = tenant.chats.filter((chat) => !isMeant(chat));
      const erased = tenant.chats.length - kept.length;
      const turns = new Set<string>();
      for (const { id, turn } of tenant.chats.filter(isMeant)) {
        tenant.byId.delete(id);
        if (turn !== null) turns.add(turn.turn);
      }
      tenant.chats.splice(0, tenant.chats.length, ...kept);
      for (const [key, { chat, holder }] of tenant.requests) {
        const isGone = chat === null ? turns.has(holder?.turn ?? "") : !tenant.byId.has(chat);
        if (isGone) tenant.requests.delete(key);
      }
      return erased;
    }),

  compact: () => Effect.succeed(true),

  export: (chatbot) =>
    Stream.suspend(() =>
      Stream.fromIterable(
        memory.tenant(chatbot).chats.flatMap((chat): Array<ArchiveRecord> => [
          { _tag: "Chat", chat: chatOf(chat) },
          ...chat.entries.map((stored): ArchiveRecord => ({
            _tag: "Entry",
            entry: entryOf(stored),
            usage: stored.usage,
          })),
        ]),
      ),
    ),

  import: Effect.fnUntraced(function* (chatbot, records) {
    const tenant = memory.tenant(chatbot);
    const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));
    const whenEmpty = <A>(f: () => A) =>
      Effect.suspend(() =>
        tenant.chats.length > 0 ? refuse("the chatbot has chats") : Effect.succeed(f()),
      );
    yield* whenEmpty(() => {});
    const chats: Array<StoredChat> = [];
    const entryIds = new Set<number>();
    yield* Stream.runForEach(inOrder(records), (record) => {
      if (record._tag === "Chat") {
        const { name } = record.chat;
        const folded = name === null ? null : fold(name);
        chats.push({ ...record.chat, folded, entries: [], ...withoutTurn });
        return Effect.void;
      }
      if (entryIds.has(record.entry.id)) return refuse("two entries have one id");
      entryIds.add(record.entry.id);
      chats.at(-1)!.entries.push({ ...record.entry, usage: record.usage });
      return Effect.void;
    });
    // At once: nobody makes a chat in between.
    return yield* whenEmpty(() => {
      for (const chat of chats) {
        tenant.chats.push(chat);
        tenant.byId.set(chat.id, chat);
        memory.moveTo("chat", chat.id);
        tenant.lastTime = Math.max(tenant.lastTime, chat.createTime.getTime());
        for (const entry of chat.entries) memory.moveTo("entry", entry.id);
      }
      return chats.length;
    });
  }),

  usage: (chatbot, since) =>
    Effect.sync(() => {
      const sums = new Map<string, UsageSum>();
      for (const { entries } of memory.tenant(chatbot).chats) {
        for (const { createTime, usage } of entries) {
          if (usage === null || createTime < since) continue;
          const { attempts, completionTokens, model, promptTokens, provider } = usage;
          const name = JSON.stringify([provider, model]);
          const sum = sums.get(name);
          sums.set(name, {
            provider,
            model,
            answers: (sum?.answers ?? 0) + 1,
            attempts: (sum?.attempts ?? 0) + attempts,
            promptTokens: (sum?.promptTokens ?? 0) + promptTokens,
            completionTokens: (sum?.completionTokens ?? 0) + completionTokens,
          });
        }
      }
      return [...sums.values()];
    }),
});
