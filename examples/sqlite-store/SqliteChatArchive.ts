import {
  type ArchiveRecord,
  ChatArchive,
  type Erasable,
  ImportRefused,
  inOrder,
  type UsageSum,
} from "@parley/core";
import { Effect, Stream } from "effect";
import type { Database } from "./SqliteDatabase.ts";
import * as Rows from "./SqliteRows.ts";

const erasable: Record<Erasable["_tag"], string> = {
  Chat: "id = :id",
  UserRef: "userRef = :userRef",
  IdleSince: `createTime < :limit AND NOT EXISTS (SELECT 1 FROM entries
    WHERE entries.chatbot = chats.chatbot AND chatId = chats.id AND createTime >= :limit)`,
};

/** Whether two of the records are entries of one id, which are of different chats then. */
const sharesEntryId = (records: ReadonlyArray<ArchiveRecord>): boolean => {
  const ids = records.flatMap((record) => (record._tag === "Entry" ? [record.entry.id] : []));
  return new Set(ids).size < ids.length;
};

export const makeChatArchive = (database: Database): ChatArchive["Service"] => {
  const { all, get, read, run, write } = database;

  return ChatArchive.of({
    // Foreign keys take along whatever refers to a chat.
    erase: (chatbot, which) =>
      write(() => {
        const value = which._tag === "IdleSince" ? { limit: which.limit.getTime() } : which;
        return run(`DELETE FROM chats WHERE chatbot = :chatbot AND ${erasable[which._tag]}`, {
          chatbot,
          ...value,
        });
      }),

    // SQLite overwrites deleted rows and uses their pages again by itself.
    compact: () => Effect.succeed(true),

    // Read at once: a transaction that stays open would hold up every other fiber.
    export: (chatbot) =>
      Stream.fromIterableEffect(
        read(() =>
          all<Rows.ChatRow>(
            `SELECT ${Rows.chatColumns} FROM chats WHERE chatbot = :chatbot ORDER BY id`,
            { chatbot },
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
          ]),
        ),
      ),

    // Taken whole before the transaction for the same reason.
    import: (chatbot, stream) =>
      Effect.flatMap(Stream.runCollect(inOrder(stream)), (records) =>
        write((): number | ImportRefused => {
          const full = get("SELECT 1 FROM chats WHERE chatbot = :chatbot", { chatbot });
          if (full) return new ImportRefused({ reason: "the chatbot has chats" });
          if (sharesEntryId(records)) {
            return new ImportRefused({ reason: "two entries have one id" });
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
          return records.filter(({ _tag }) => _tag === "Chat").length;
        }),
      ),

    usage: (chatbot, since) =>
      read(() =>
        all<UsageSum>(
          `SELECT usage ->> 'provider' AS provider, usage ->> 'model' AS model,
             count(*) AS answers, sum(usage ->> 'attempts') AS attempts,
             sum(usage ->> 'promptTokens') AS promptTokens,
             sum(usage ->> 'completionTokens') AS completionTokens
           FROM entries WHERE chatbot = :chatbot AND usage IS NOT NULL AND createTime >= :since
           GROUP BY 1, 2 ORDER BY 1, 2`,
          { chatbot, since: since.getTime() },
        ).map((row) => ({ ...row })),
      ),
  });
};
