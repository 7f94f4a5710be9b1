/**
 * Reads the chats of a chatbot with their entries, or its feedback, as a stream from one snapshot.
 */
import type { ArchiveRecord, Chat, EntryRow, FeedbackKind, Usage } from "@parley/core/ports";
import { Stream } from "effect";
import { time } from "../connections/PgParams.ts";
import type { DedicatedSession } from "../connections/Session.ts";
import { entryColumns, everything, toEntry, type StoredEntry } from "../rows/ChatRows.ts";

export const exportRecords = (
  { stream }: DedicatedSession,
  chatbot: number,
  userRef: string | null,
) => {
  const values = userRef === null ? [chatbot] : [chatbot, userRef];
  return stream<ExportRow>(exportOf(userRef !== null), values).pipe(
    Stream.mapAccum(() => 0, toRecords),
  );
};

/** A chat without entries yields one row, in which the fields of the entry are null. */
type ExportRow = {
  readonly in_chat: Chat["id"];
  readonly chat_time: Date;
  readonly usage: Usage | null;
} & Pick<Chat, "name" | "userRef"> &
  (StoredEntry | { readonly id: null });

/** Returns a row's records: its chat, unless the previous row has the same chat, and its entry, if it has one. */
const toRecords = (
  chatBefore: number,
  row: ExportRow,
): readonly [number, ReadonlyArray<ArchiveRecord>] => {
  const { chat_time: createTime, in_chat: id, name, userRef } = row;
  const records: Array<ArchiveRecord> = [];
  if (id !== chatBefore) records.push({ _tag: "Chat", chat: { id, name, userRef, createTime } });
  if (row.id !== null) records.push({ _tag: "Entry", entry: toEntry(row), usage: row.usage });
  return [id, records];
};

const allEntryColumns = `${entryColumns("entry", everything)}, case when provider is not null then json_build_object(
    'provider', provider, 'model', model, 'promptTokens', prompt_tokens, 'completionTokens', completion_tokens,
    'attempts', attempts, 'latencyMillis', latency_millis
  ) end as usage`;

// The join is lateral, so that every plan scans the chats and seeks their entries.
const exportOf = (isOfUser: boolean) => `
select chat.id::float8 as in_chat, chat.name, chat.user_ref as "userRef", chat.create_time as chat_time,
  ${allEntryColumns}
from chat left join lateral (
  select * from entry where chatbot_id = $1 and chat_id = chat.id order by position
) entry on true
where chat.chatbot_id = $1${isOfUser ? " and chat.user_ref = $2" : ""}
order by chat.position, entry.position`;

export const exportFeedback = (
  { stream }: DedicatedSession,
  chatbot: number,
  since: Date,
  kind: FeedbackKind,
) =>
  stream<StoredEntry & Omit<EntryRow, "entry">>(feedbackOf(kind), [chatbot, time(since)]).pipe(
    Stream.map(({ apiKeyId, requestId, usage, ...row }) => ({
      entry: toEntry(row),
      usage,
      apiKeyId,
      requestId,
    })),
  );

const feedbackOf = (kind: FeedbackKind) => `
select ${allEntryColumns}, key_id as "apiKeyId", request_id as "requestId"
from entry where chatbot_id = $1 and create_time >= $2::timestamptz
  and ${kind === "rated" ? "rating is not null" : `metadata like '%"found":false%'`}
order by id desc`;
