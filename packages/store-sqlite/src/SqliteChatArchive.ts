import {
  type ArchiveRecord,
  ChatArchive,
  type ChatbotNotFound,
  type DatedErasure,
  erasureAt,
  erasureDetail,
  exportDetail,
  importDetail,
  ImportRefused,
  checkArchiveOrder,
  type UsageSum,
} from "@parley/core/ports";
import { Effect, Stream } from "effect";
import type { Database } from "./SqliteDatabase.ts";
import * as Rows from "./SqliteRows.ts";

/** The SQL condition under which each kind of erasure erases a chat. */
const erasable: Record<DatedErasure["_tag"], string> = {
  Chat: "id = :id",
  UserRef: "userRef = :userRef",
  IdleSince: `createTime < :limit AND NOT EXISTS (SELECT 1 FROM entries
    WHERE entries.chatbot = chats.chatbot AND chatId = chats.id AND createTime >= :limit)`,
  All: "TRUE",
};

/** The condition for erasing a visitor's turn that has no chat yet. The turn's key contains the visitor's `userRef`. */
const erasableTurns: Record<DatedErasure["_tag"], string> = {
  Chat: "FALSE",
  UserRef: "substr(idempotencyKey, instr(idempotencyKey, char(10)) + 1) = :userRef",
  IdleSince: "heldUntil < :limit",
  All: "TRUE",
};

/** Whether two entries of different chats have the same id. Within one chat, `checkArchiveOrder` rejects that. */
const sharesEntryId = (records: ReadonlyArray<ArchiveRecord>): boolean => {
  const ids = records.flatMap((record) => (record._tag === "Entry" ? [record.entry.id] : []));
  return new Set(ids).size < ids.length;
};

export const makeChatArchive = (database: Database): ChatArchive["Service"] => {
  const { all, emptyLog, get, read, rewriteFile, run, write } = database;

  // Foreign keys delete all rows that refer to a chat.
  const erase: ChatArchive["Service"]["erase"] = (chatbot, which, actor) =>
    write((now): { erasedCount: number; turnCount: number } | ChatbotNotFound => {
      const refusal = Rows.chatbotMissing(database, chatbot);
      if (refusal) return refusal;
      const erasure = erasureAt(which, now);
      const value = erasure._tag === "IdleSince" ? { limit: erasure.limit.getTime() } : erasure;
      const values = { chatbot, ...value };
      const erasedCount = run(
        `DELETE FROM chats WHERE chatbot = :chatbot AND ${erasable[erasure._tag]}`,
        values,
      );
      const turnCount = run(
        `DELETE FROM turns WHERE chatbot = :chatbot AND chat IS NULL
           AND instr(idempotencyKey, char(10)) > 0 AND ${erasableTurns[erasure._tag]}`,
        values,
      );
      const detail = erasureDetail(erasure, erasedCount);
      if (erasedCount > 0)
        Rows.insertAudit(database, { actor, chatbot, action: "erase", detail }, now);
      return { erasedCount, turnCount };
    }).pipe(
      Effect.tap(({ erasedCount, turnCount }) =>
        erasedCount + turnCount > 0 ? rewriteFile : Effect.void,
      ),
      Effect.tap(emptyLog),
      Effect.map(({ erasedCount }) => erasedCount),
    );

  // Read in one go: a transaction that stays open would hold up every other fiber.
  const exportChats: ChatArchive["Service"]["export"] = (chatbot, actor, person) =>
    Stream.fromIterableEffect(
      write((now): ReadonlyArray<ArchiveRecord> | ChatbotNotFound => {
        const refusal = Rows.chatbotMissing(database, chatbot);
        if (refusal) return refusal;
        const detail = exportDetail(person);
        Rows.insertAudit(database, { actor, chatbot, action: "export", detail }, now);
        return all<Rows.ChatRow>(
          `SELECT ${Rows.chatColumns} FROM chats
           WHERE chatbot = :chatbot AND (:userRef IS NULL OR userRef = :userRef) ORDER BY id`,
          { chatbot, userRef: person?.userRef ?? null },
        ).flatMap((chat): Array<ArchiveRecord> => [
          { _tag: "Chat", chat: Rows.toChat(chat) },
          ...all<Rows.EntryRow & { readonly usage: string | null }>(
            `SELECT ${Rows.entryColumns}, usage FROM entries
             WHERE chatbot = :chatbot AND chatId = :chat ORDER BY id`,
            { chatbot, chat: chat.id },
          ).map(({ usage, ...row }) => ({
            _tag: "Entry" as const,
            entry: Rows.toEntry(row),
            usage: usage === null ? null : JSON.parse(usage),
          })),
        ]);
      }),
    );

  /** Returns why the chatbot cannot import chats; `undefined` if it can. */
  const findRefusal = (chatbot: number): ChatbotNotFound | ImportRefused | undefined => {
    const chatbotNotFound = Rows.chatbotMissing(database, chatbot);
    const existingChat = get("SELECT 1 FROM chats WHERE chatbot = :chatbot", { chatbot });
    return existingChat === undefined
      ? chatbotNotFound
      : new ImportRefused({ reason: "the chatbot already has chats" });
  };

  // The records are collected first: a transaction that waits for them would hold up every other fiber.
  const importChats: ChatArchive["Service"]["import"] = Effect.fnUntraced(
    function* (chatbot, stream, actor) {
      yield* read(() => findRefusal(chatbot));
      const records = yield* Stream.runCollect(checkArchiveOrder(stream));
      return yield* write((now): number | ChatbotNotFound | ImportRefused => {
        // Checked again: a chat may have been created while the records were being read.
        const refusal = findRefusal(chatbot);
        if (refusal) return refusal;
        if (sharesEntryId(records)) {
          return new ImportRefused({ reason: "two entries have the same id" });
        }
        for (const record of records)
          if (record._tag === "Chat") Rows.insertChat(database, chatbot, record.chat);
          else Rows.insertEntry(database, chatbot, record.entry, record.usage);
        run(
          `UPDATE sequences SET last = max(last, coalesce(CASE kind
             WHEN 'chat' THEN (SELECT max(id) FROM chats WHERE chatbot = :chatbot)
             ELSE (SELECT max(id) FROM entries WHERE chatbot = :chatbot) END, 0))`,
          { chatbot },
        );
        const chats = records.filter(({ _tag }) => _tag === "Chat").length;
        const detail = importDetail(chats);
        Rows.insertAudit(database, { actor, chatbot, action: "import", detail }, now);
        return chats;
      });
    },
  );

  const usage: ChatArchive["Service"]["usage"] = (chatbot, since, by = null) =>
    read(() =>
      all<UsageSum>(
        `SELECT CASE :by WHEN 'day' THEN date(createTime / 1000, 'unixepoch') WHEN 'key' THEN apiKeyId
             WHEN 'userRef' THEN (SELECT userRef FROM chats WHERE chatbot = :chatbot AND id = chatId)
           END AS "group", usage ->> 'provider' AS provider, usage ->> 'model' AS model,
           count(*) AS answers, total(usage ->> 'attempts') AS attempts,
           total(usage ->> 'promptTokens') AS promptTokens,
           total(usage ->> 'completionTokens') AS completionTokens
         FROM entries WHERE chatbot = :chatbot AND question <> '' AND NOT flagged AND createTime >= :since
         GROUP BY 1, 2, 3`,
        { chatbot, since: since.getTime(), by },
      ).map((row) => ({ ...row })),
    );

  return ChatArchive.of({ erase, export: exportChats, import: importChats, usage });
};
