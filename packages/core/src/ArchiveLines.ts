/**
 * Exports as text: newline-delimited JSON, a line for each chat, followed by a line for each of its
 * entries. Fields are named as on the wire, with the usage beside them.
 */
import { Effect, Schema, Stream } from "effect";
import type { ArchiveRecord } from "./ChatArchive.ts";
import { ImportRefused } from "./Errors.ts";
import { ChatName, Text, UserRef } from "./Text.ts";

const Id = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }));
const Count = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }));
const Time = Schema.String.check(
  Schema.isPattern(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/),
  Schema.makeFilter((text: string) => !Number.isNaN(Date.parse(text)), { identifier: "time" }),
);

const Line = Schema.Union([
  Schema.Struct({
    chat: Schema.Struct({
      id: Id,
      name: Schema.NullOr(ChatName),
      userRef: Schema.NullOr(UserRef),
      _createTime: Time,
    }),
  }),
  Schema.Struct({
    entry: Schema.Struct({
      id: Id,
      chat_id: Id,
      question: Text,
      answer: Text,
      moderation: Text,
      flagged: Schema.Boolean,
      _createTime: Time,
      usage: Schema.NullOr(
        Schema.Struct({
          provider: Text,
          model: Text,
          promptTokens: Count,
          completionTokens: Count,
          attempts: Count,
          latencyMillis: Count,
        }),
      ),
    }),
  }),
]);

const decodeLine = Schema.decodeUnknownEffect(Schema.fromJsonString(Line));

/** The line of one record, with its line break. */
export const lineOf = (record: ArchiveRecord): string => {
  if (record._tag === "Chat") {
    const { createTime, id, name, userRef } = record.chat;
    return `${JSON.stringify({ chat: { id, name, userRef, _createTime: createTime } })}\n`;
  }
  const { answer, chatId, createTime, flagged, id, moderation, question } = record.entry;
  const entry = {
    id,
    chat_id: chatId,
    question,
    answer,
    moderation,
    flagged,
    _createTime: createTime,
    usage: record.usage,
  };
  return `${JSON.stringify({ entry })}\n`;
};

/** The records of a text; fails at the first line that is none, and names it. */
export const recordsOf = <E, R>(
  text: Stream.Stream<string, E, R>,
): Stream.Stream<ArchiveRecord, E | ImportRefused, R> =>
  Stream.splitLines(text).pipe(
    Stream.zipWithIndex,
    Stream.filter(([line]) => line.trim() !== ""),
    Stream.mapEffect(([line, at]) =>
      decodeLine(line).pipe(
        Effect.map((decoded): ArchiveRecord => {
          if ("chat" in decoded) {
            const { _createTime, ...chat } = decoded.chat;
            return { _tag: "Chat", chat: { ...chat, createTime: new Date(_createTime) } };
          }
          const { _createTime, chat_id: chatId, usage, ...entry } = decoded.entry;
          return {
            _tag: "Entry",
            entry: { ...entry, chatId, createTime: new Date(_createTime) },
            usage,
          };
        }),
        // What is wrong with it may quote it; where it is, is enough.
        Effect.mapError(
          () => new ImportRefused({ reason: `line ${at + 1} is no chat and no entry` }),
        ),
      ),
    ),
  );
