/**
 * The order of the records in an export, which every store checks with this code during an import.
 */
import { Effect, Stream } from "effect";
import type { ArchiveRecord } from "../ports/ChatArchive.ts";
import { ImportRefused } from "../model/Errors.ts";

/** The highest id that an import accepts. It leaves at least a trillion greater ids that are exact in JSON. */
const highestId = 2 ** 53 - 2 ** 40;

/** The earliest time that every store can keep. No chat or entry is older. */
export const earliestTime = new Date("0001-01-01T00:00:00Z");
const latest = new Date("9999-12-31T23:59:59.999Z");

/**
 * Emits the records unchanged, and fails with `ImportRefused` at the first record that breaks a rule:
 *
 * - Ids are positive integers up to 2^53 - 2^40.
 * - Chats are in ascending order of id. Entries follow their chat, in ascending order of id.
 * - Times are in the years 1 to 9999. No chat is older than the chat before it; no entry is older than its chat or than
 *   the entry before it.
 *
 * The store itself checks that no two chats have an entry with the same id.
 */
export const checkArchiveOrder = <E, R>(
  records: Stream.Stream<ArchiveRecord, E, R>,
): Stream.Stream<ArchiveRecord, E | ImportRefused, R> =>
  Stream.suspend(() => {
    const none = { id: 0, createTime: earliestTime };
    let chat = none;
    let entry = none;
    const flawOf = (record: ArchiveRecord): string | null => {
      const [row, before] =
        record._tag === "Chat" ? [record.chat, chat] : ([record.entry, entry] as const);
      if (!Number.isInteger(row.id) || row.id < 1) return "its id is not a positive integer";
      if (row.id > highestId) return "its id leaves no room for later ids";
      if (record._tag === "Entry" && (chat === none || record.entry.chatId !== chat.id)) {
        return "it does not follow its chat";
      }
      if (row.id <= before.id) return `its id is not greater than ${before.id}, the previous id`;
      if (!(row.createTime >= earliestTime && row.createTime <= latest)) {
        return "its time is not between the years 1 and 9999";
      }
      if (row.createTime < before.createTime) {
        return before.id === 0
          ? "it is older than its chat"
          : `it is older than ${record._tag.toLowerCase()} ${before.id}, which precedes it`;
      }
      if (record._tag === "Chat") [chat, entry] = [row, { ...row, id: 0 }];
      else entry = row;
      return null;
    };
    return Stream.tap(records, (record) => {
      const reason = flawOf(record);
      if (reason === null) return Effect.void;
      const name = record._tag === "Chat" ? `chat ${record.chat.id}` : `entry ${record.entry.id}`;
      return Effect.fail(new ImportRefused({ reason: `${name}: ${reason}` }));
    });
  });
