/**
 * The rules of erasures, exports and imports.
 */
import { Effect, Stream } from "effect";
import { checkArchiveOrder } from "../archive/ArchiveOrder.ts";
import { ChatNotFound, ImportRefused } from "../model/Errors.ts";
import { pickEntry } from "../model/Entry.ts";
import { entryIncludes } from "../model/ListQuery.ts";
import type { ChatbotId } from "../model/Ids.ts";
import {
  ChatArchive,
  erasureAt,
  erasureDetail,
  exportDetail,
  importDetail,
  type ArchiveRecord,
  type DatedErasure,
} from "../ports/ChatArchive.ts";
import { registeredChatbot } from "./Registry.ts";
import type { ColdRows, ColdTx, Greatest } from "./Rows.ts";
import { hasFeedback } from "./Selection.ts";
import { operation } from "../services/Telemetry.ts";

type Port = ChatArchive["Service"];

/** Adds the fields that a record of an older export lacks. */
const withAllFields = (record: ArchiveRecord): ArchiveRecord =>
  record._tag === "Chat" ? record : { ...record, entry: pickEntry(record.entry, entryIncludes) };

/** The greatest ids and the latest time of a chat in these records, and in those before. */
const greatestOf = (
  records: ReadonlyArray<ArchiveRecord>,
  before: Greatest = { chat: 0, entry: 0, chatTime: 0 },
): Greatest =>
  records.reduce(
    ({ chat, chatTime, entry }, record) =>
      record._tag === "Entry"
        ? { chat, chatTime, entry: Math.max(entry, record.entry.id) }
        : { chat: record.chat.id, chatTime: record.chat.createTime.getTime(), entry },
    before,
  );

const refuseEqualIds = (records: ReadonlyArray<ArchiveRecord>) => {
  const ids = records.flatMap((record) => (record._tag === "Entry" ? [record.entry.id] : []));
  return new Set(ids).size === ids.length
    ? Effect.void
    : new ImportRefused({ reason: "two entries have the same id" });
};

/** The number of records that an import stores at a time. */
const batch = 200;

export const makeChatArchive = (rows: ColdRows): Port => {
  /** Erases the chats, adds an entry to the audit log if there were any, and returns their number. */
  const eraseAndRecord = Effect.fnUntraced(function* (
    chatbot: ChatbotId,
    which: DatedErasure,
    actor: string,
    visitor: string | null,
  ) {
    let erased = 0;
    const record = Effect.suspend(() =>
      erased === 0
        ? Effect.void
        : rows.write({ _tag: "Chatbot", chatbot }, (tx) =>
            visitor === null
              ? tx.audit([
                  { actor, chatbot, action: "erase", detail: erasureDetail(which, erased) },
                ])
              : tx.countVisitorErasure(chatbot, actor),
          ),
    );
    const erasure = rows.erase(chatbot, which, (chats) => void (erased += chats));
    // Even an erasure that fails midway may have erased chats.
    yield* Effect.onExit(erasure, () => record);
    return erased;
  });

  const erase: Port["erase"] = operation("ChatArchive.erase")(
    Effect.fnUntraced(function* (chatbot, which, actor) {
      yield* rows.read((tx) => registeredChatbot(tx, chatbot));
      return yield* eraseAndRecord(chatbot, erasureAt(which, yield* rows.now), actor, null);
    }),
  );

  const deleteChat: Port["deleteChat"] = operation("ChatArchive.deleteChat")(
    Effect.fnUntraced(function* (chatbot, chatId, actor, visitor = null) {
      const chat = yield* rows.read((tx) => tx.ownChat(chatbot, chatId, visitor));
      if (chat === null) return yield* new ChatNotFound({ chatId });
      const erased = yield* eraseAndRecord(chatbot, { _tag: "Chat", id: chatId }, actor, visitor);
      // Another call has erased the chat in the meantime.
      return erased === 0 ? yield* new ChatNotFound({ chatId }) : chat;
    }),
  );

  const exportRecords: Port["export"] = (chatbot, actor, person) =>
    rows
      .write(
        { _tag: "Chatbot", chatbot },
        Effect.fnUntraced(function* (tx) {
          yield* registeredChatbot(tx, chatbot);
          yield* tx.audit([{ actor, chatbot, action: "export", detail: exportDetail(person) }]);
        }),
      )
      .pipe(
        Effect.map(() => rows.records(chatbot, person?.userRef ?? null)),
        Stream.unwrap,
      );

  const refuseUnlessEmpty = Effect.fnUntraced(function* (tx: ColdTx, chatbot: ChatbotId) {
    yield* registeredChatbot(tx, chatbot);
    if (yield* tx.hasChats(chatbot))
      return yield* new ImportRefused({ reason: "the chatbot already has chats" });
  });

  /**
   * Stores records, which are in order, in several transactions of whole chats, each of at least `limit` records. Only a
   * failure of the store or the deletion of the chatbot can end it midway. The first transaction makes all later ids and
   * times greater.
   */
  const importInParts = Effect.fnUntraced(function* (
    chatbot: ChatbotId,
    records: ReadonlyArray<ArchiveRecord>,
    limit: number,
    actor: string,
  ) {
    const greatest = greatestOf(records);
    const chats = records.filter(({ _tag }) => _tag === "Chat").length;
    let from = 0;
    do {
      const start = from;
      do from++;
      while (from < records.length && (from < start + limit || records[from]!._tag === "Entry"));
      yield* rows.write(
        { _tag: "Import", chatbot },
        Effect.fnUntraced(function* (tx) {
          if (start > 0) yield* registeredChatbot(tx, chatbot);
          else {
            yield* refuseUnlessEmpty(tx, chatbot);
            yield* tx.endImport(chatbot, greatest);
            yield* tx.audit([{ actor, chatbot, action: "import", detail: importDetail(chats) }]);
          }
          yield* tx.insertRecords(chatbot, records.slice(start, from).map(withAllFields));
        }),
      );
    } while (from < records.length);
    return chats;
  }, Effect.uninterruptible);

  const importRecords: Port["import"] = operation("ChatArchive.import")(
    Effect.fnUntraced(function* <E, R>(
      chatbot: ChatbotId,
      stream: Stream.Stream<ArchiveRecord, E, R>,
      actor: string,
    ) {
      const scope = { _tag: "Import", chatbot } as const;
      const records = checkArchiveOrder(stream);
      if (rows.recordsAtOnce !== null) {
        yield* rows.write(scope, (tx) => refuseUnlessEmpty(tx, chatbot));
        const all = yield* Stream.runCollect(records);
        yield* refuseEqualIds(all);
        return yield* importInParts(chatbot, all, rows.recordsAtOnce, actor);
      }
      return yield* rows.write(
        scope,
        Effect.fnUntraced(function* (tx) {
          yield* refuseUnlessEmpty(tx, chatbot);
          let chats = 0;
          let greatest = greatestOf([]);
          yield* Stream.runForEachArray(Stream.rechunk(records, batch), (some) => {
            for (const { _tag } of some) if (_tag === "Chat") chats++;
            greatest = greatestOf(some, greatest);
            return tx.insertRecords(chatbot, some.map(withAllFields));
          });
          yield* tx.endImport(chatbot, greatest);
          yield* tx.audit([{ actor, chatbot, action: "import", detail: importDetail(chats) }]);
          return chats;
        }),
      );
    }),
  );

  return ChatArchive.of({
    erase,
    deleteChat,
    export: exportRecords,
    import: importRecords,
    usage: (chatbot, query) => rows.read((tx) => tx.usage(chatbot, query)),
    sizes: rows.read((tx) => tx.sizes()),
    feedback: (chatbot, since, kind) =>
      Stream.filter(rows.feedback(chatbot, since, kind), ({ entry }) =>
        hasFeedback(entry, since, kind),
      ),
  });
};
