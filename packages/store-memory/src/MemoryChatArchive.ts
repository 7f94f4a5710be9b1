/**
 * Erasures, exports, imports and usage reports.
 */
import {
  ChatArchive,
  erasureAt,
  erasureDetail,
  exportDetail,
  importDetail,
  ImportRefused,
  checkArchiveOrder,
  type ArchiveRecord,
  type DatedErasure,
  type UsageSum,
} from "@parley/core/ports";
import { Effect, Result, Stream } from "effect";
import {
  atomically,
  findChatbot,
  emptyChat,
  record,
  tenantOf,
  type Memory,
  type StoredChat,
} from "./Memory.ts";

type Port = ChatArchive["Service"];

export const makeChatArchive = (memory: Memory): Port => {
  const erase: Port["erase"] = (chatbot, which, actor) =>
    atomically(function* (now) {
      const { chats, idempotencyRecords, leases } = yield* findChatbot(memory, chatbot);
      const erasure = erasureAt(which, now);
      const erasedChats = [...chats.values()].filter((chat) => matches(erasure, chat));
      for (const { chat, turnId } of erasedChats) {
        chats.delete(chat.id);
        if (turnId !== null) leases.delete(turnId);
      }
      for (const [key, { outcome }] of idempotencyRecords) {
        const turnId = outcome._tag === "Pending" ? outcome.turnId : "";
        const isErased =
          outcome.chat === null
            ? matchesKey(erasure, key, leases.get(turnId))
            : !chats.has(outcome.chat);
        if (!isErased) continue;
        idempotencyRecords.delete(key);
        leases.delete(turnId);
      }
      const detail = erasureDetail(erasure, erasedChats.length);
      if (erasedChats.length > 0) record(memory, now, actor, chatbot, "erase", detail);
      return erasedChats.length;
    });

  const exportChats: Port["export"] = (chatbot, actor, person) =>
    atomically(function* (now) {
      const { chats } = yield* findChatbot(memory, chatbot);
      record(memory, now, actor, chatbot, "export", exportDetail(person));
      const exportedChats = [...chats.values()].filter(
        ({ chat }) => person === undefined || chat.userRef === person.userRef,
      );
      return Stream.fromIterable(exportedChats.flatMap(toRecords));
    }).pipe(Stream.unwrap);

  const importChats: Port["import"] = Effect.fnUntraced(function* (chatbot, records, actor) {
    const refusal = (reason: string) => Result.fail(new ImportRefused({ reason }));
    const findEmpty = () =>
      Result.flatMap(findChatbot(memory, chatbot), (tenant) =>
        tenant.chats.size > 0 ? refusal("the chatbot already has chats") : Result.succeed(tenant),
      );
    yield* Effect.fromResult(findEmpty());
    const chats: Array<StoredChat> = [];
    const entryIds = new Set<number>();
    yield* Stream.runForEach(checkArchiveOrder(records), (row) => {
      if (row._tag === "Chat") {
        chats.push(emptyChat(row.chat));
        return Effect.void;
      }
      const { entry, usage } = row;
      if (entryIds.has(entry.id)) return Effect.fromResult(refusal("two entries have the same id"));
      entryIds.add(entry.id);
      chats.at(-1)!.entries.push({ entry, usage, apiKeyId: null });
      return Effect.void;
    });
    return yield* atomically(function* (now) {
      // Checked again: a chat may have been created while the records were read.
      const tenant = yield* findEmpty();
      const { lastId } = memory;
      for (const storedChat of chats) {
        const { createTime, id } = storedChat.chat;
        tenant.chats.set(id, storedChat);
        tenant.lastTime = Math.max(tenant.lastTime, createTime.getTime());
        lastId.chat = Math.max(lastId.chat, id);
      }
      for (const id of entryIds) lastId.entry = Math.max(lastId.entry, id);
      record(memory, now, actor, chatbot, "import", importDetail(chats.length));
      return chats.length;
    });
  });

  const usage: Port["usage"] = (chatbot, since, by = null) =>
    Effect.sync(() => {
      const sums = new Map<string, UsageSum>();
      for (const { chat, entries } of tenantOf(memory, chatbot).chats.values()) {
        for (const { entry, apiKeyId, usage } of entries) {
          if (entry.question === "" || entry.flagged || entry.createTime < since) continue;
          const { attempts, completionTokens, model, promptTokens, provider } = usage ?? noUsage;
          const day = entry.createTime.toISOString().slice(0, 10);
          const groups = { day, key: apiKeyId, userRef: chat.userRef };
          const group = by === null ? null : groups[by];
          const key = JSON.stringify([group, provider, model]);
          const sum = sums.get(key);
          sums.set(key, {
            group,
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
    });

  return { erase, export: exportChats, import: importChats, usage };
};

const noUsage = { provider: null, model: null, attempts: 0, promptTokens: 0, completionTokens: 0 };

const matches = (which: DatedErasure, { chat, entries }: StoredChat): boolean => {
  switch (which._tag) {
    case "Chat":
      return chat.id === which.id;
    case "UserRef":
      return chat.userRef === which.userRef;
    case "IdleSince":
      return (entries.at(-1)?.entry ?? chat).createTime < which.limit;
    case "All":
      return true;
  }
};

/** Whether to erase the key of an ask that has no chat yet; only visitors' keys, which contain a `userRef`, qualify. */
const matchesKey = (which: DatedErasure, key: string, leaseEnd = 0): boolean => {
  const at = key.indexOf("\n");
  if (at === -1) return false;
  switch (which._tag) {
    case "Chat":
      return false;
    case "UserRef":
      return key.slice(at + 1) === which.userRef;
    case "IdleSince":
      return leaseEnd < which.limit.getTime();
    case "All":
      return true;
  }
};

const toRecords = ({ chat, entries }: StoredChat): Array<ArchiveRecord> => [
  { _tag: "Chat", chat },
  ...entries.map(({ entry, usage }): ArchiveRecord => ({ _tag: "Entry", entry, usage })),
];
