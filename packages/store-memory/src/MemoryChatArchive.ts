/**
 * Operators' view of the chats: erasures, exports and imports, and what answers have cost.
 */
import {
  ChatArchive,
  ChatbotNotFound,
  erasureDetail,
  fold,
  importDetail,
  ImportRefused,
  inOrder,
  type ArchiveRecord,
  type Erasable,
  type UsageSum,
} from "@parley/core";
import { Effect, Stream } from "effect";
import { chatOf, entryOf } from "./MemoryChatStore.ts";
import { atPresent, type Memory } from "./Memory.ts";
import { withoutTurn, type StoredChat, type Tenant } from "./Tenant.ts";

export const makeChatArchive = (memory: Memory): ChatArchive["Service"] => ({
  erase: (chatbot, which, actor) =>
    atPresent<number, ChatbotNotFound>((now) => {
      const tenant = memory.registered.get(chatbot)?.tenant;
      if (tenant === undefined) return Effect.fail(new ChatbotNotFound({ chatbot }));
      const isMeant = meant(which);
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
      if (erased > 0) {
        const detail = erasureDetail(which, erased);
        memory.audit.push({ time: new Date(now), actor, chatbot, action: "erase", detail });
      }
      return Effect.succeed(erased);
    }),

  export: (chatbot, actor) =>
    Stream.unwrap(
      atPresent<Stream.Stream<ArchiveRecord>, ChatbotNotFound>((now) => {
        const tenant = memory.registered.get(chatbot)?.tenant;
        if (tenant === undefined) return Effect.fail(new ChatbotNotFound({ chatbot }));
        memory.audit.push({ time: new Date(now), actor, chatbot, action: "export", detail: "" });
        return Effect.succeed(Stream.fromIterable(recordsOf(tenant)));
      }),
    ),

  import: Effect.fnUntraced(function* (chatbot, records, actor) {
    const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));
    const whenEmpty = <A>(f: (tenant: Tenant, now: number) => A) =>
      atPresent<A, ChatbotNotFound | ImportRefused>((now) => {
        const tenant = memory.registered.get(chatbot)?.tenant;
        if (tenant === undefined) return Effect.fail(new ChatbotNotFound({ chatbot }));
        if (tenant.chats.length > 0) return refuse("the chatbot has chats");
        return Effect.succeed(f(tenant, now));
      });
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
    // In one step: no other fiber creates a chat in between.
    return yield* whenEmpty((tenant, now) => {
      for (const chat of chats) {
        tenant.chats.push(chat);
        tenant.byId.set(chat.id, chat);
        memory.moveTo("chat", chat.id);
        tenant.lastTime = Math.max(tenant.lastTime, chat.createTime.getTime());
        for (const entry of chat.entries) memory.moveTo("entry", entry.id);
      }
      const detail = importDetail(chats.length);
      memory.audit.push({ time: new Date(now), actor, chatbot, action: "import", detail });
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

const meant =
  (which: Erasable) =>
  (chat: StoredChat): boolean => {
    switch (which._tag) {
      case "Chat":
        return chat.id === which.id;
      case "UserRef":
        return chat.userRef === which.userRef;
      case "IdleSince":
        return (chat.entries.at(-1) ?? chat).createTime < which.limit;
      case "All":
        return true;
    }
  };

const recordsOf = ({ chats }: Tenant): ReadonlyArray<ArchiveRecord> =>
  chats.flatMap((chat): Array<ArchiveRecord> => [
    { _tag: "Chat", chat: chatOf(chat) },
    ...chat.entries.map((stored): ArchiveRecord => ({
      _tag: "Entry",
      entry: entryOf(stored),
      usage: stored.usage,
    })),
  ]);
