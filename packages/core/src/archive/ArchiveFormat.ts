/**
 * Exports as text: newline-delimited JSON, a line for each chat, followed by a line for each of its
 * entries. Fields are named as on the wire, with the usage beside them. The last line tells how many there
 * are, so that an export that was cut off is not taken for a whole one.
 */
import { Effect, Result, Schema, Stream } from "effect";
import type { ArchiveRecord } from "../ports/ChatArchive.ts";
import { ImportRefused } from "../model/Errors.ts";
import { listProblems } from "../model/SchemaErrors.ts";
import { ChatName, Text, UserRef } from "../model/Text.ts";

const Id = Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }));
const countUpTo = (maximum: number) => Schema.Int.check(Schema.isBetween({ minimum: 0, maximum }));
const Count = countUpTo(Number.MAX_SAFE_INTEGER);
/** Exactly what `toISOString` writes. No 30th of February. */
const Time = Schema.String.check(
  Schema.makeFilter(
    (text: string) => {
      const time = new Date(text);
      return !Number.isNaN(time.getTime()) && time.toISOString() === text;
    },
    { identifier: "time" },
  ),
);

const Line = Schema.Struct({
  chat: Schema.optionalKey(
    Schema.Struct({
      id: Id,
      name: Schema.NullOr(ChatName),
      userRef: Schema.NullOr(UserRef),
      _createTime: Time,
    }),
  ),
  entry: Schema.optionalKey(
    Schema.Struct({
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
          attempts: countUpTo(2 ** 31 - 1),
          latencyMillis: Count,
        }),
      ),
    }),
  ),
  end: Schema.optionalKey(Schema.Struct({ chats: Count, entries: Count })),
}).check(Schema.makeFilter((line) => Object.keys(line).length === 1));

const decodeLine = Schema.decodeUnknownResult(Schema.fromJsonString(Line), {
  onExcessProperty: "error",
});

/** The field and what is wrong with it, of a line that is refused; not what may be no name, but somebody's text. */
const fieldOf = (error: Schema.SchemaError): string => {
  const [problem] = listProblems(error);
  return problem !== undefined && /^[\w.]{1,40}$/.test(problem.field)
    ? `: ${problem.field}: ${problem.message}`
    : "";
};

const lineOf = (record: ArchiveRecord): string => {
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

/** The lines of an export, each with its line break. */
export const linesOf = <E, R>(
  records: Stream.Stream<ArchiveRecord, E, R>,
): Stream.Stream<string, E, R> =>
  Stream.suspend(() => {
    const end = { chats: 0, entries: 0 };
    return records.pipe(
      Stream.map((record) => {
        end[record._tag === "Chat" ? "chats" : "entries"]++;
        return lineOf(record);
      }),
      Stream.concat(Stream.fromEffect(Effect.sync(() => `${JSON.stringify({ end })}\n`))),
    );
  });

const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));

/** The lines of a text; fails where it is no UTF-8. */
const textLines = <E, R>(
  bytes: Stream.Stream<Uint8Array, E, R>,
): Stream.Stream<string, E | ImportRefused, R> =>
  Stream.suspend(() => {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    const decode = (some?: Uint8Array) =>
      Effect.try({
        try: () => decoder.decode(some, { stream: some !== undefined }),
        catch: () => new ImportRefused({ reason: "it is not UTF-8" }),
      });
    return bytes.pipe(
      Stream.mapEffect(decode),
      Stream.concat(Stream.fromEffect(Effect.suspend(() => decode()))),
      Stream.splitLines,
    );
  });

/** The records of an export in UTF-8; fails at the first line that is none, and names it, or if it was cut off. */
export const recordsOf = <E, R>(
  bytes: Stream.Stream<Uint8Array, E, R>,
): Stream.Stream<ArchiveRecord, E | ImportRefused, R> =>
  Stream.suspend(() => {
    const read = { chats: 0, entries: 0 };
    let ended = false;
    let at = 0;

    /** The record of a line, if it has one, or why it is refused. */
    const recordOf = (line: string): ArchiveRecord | string | null => {
      at++;
      if (line.trim() === "") return null;
      const result = decodeLine(line);
      if (Result.isFailure(result)) {
        return `line ${at} is no chat and no entry${fieldOf(result.failure)}`;
      }
      if (ended) return `line ${at} comes after the end`;
      const decoded = result.success;
      if (decoded.end !== undefined) {
        const { chats, entries } = decoded.end;
        ended = true;
        return chats === read.chats && entries === read.entries
          ? null
          : `its end tells of ${chats} chats and ${entries} entries, but there are ${read.chats} and ${read.entries}`;
      }
      if (decoded.chat !== undefined) {
        read.chats++;
        const { _createTime, ...chat } = decoded.chat;
        return { _tag: "Chat", chat: { ...chat, createTime: new Date(_createTime) } };
      }
      read.entries++;
      const { _createTime, chat_id: chatId, usage, ...entry } = decoded.entry!;
      return {
        _tag: "Entry",
        entry: { ...entry, chatId, createTime: new Date(_createTime) },
        usage,
      };
    };

    const recordsOfSome = (lines: ReadonlyArray<string>) => {
      const records: Array<ArchiveRecord> = [];
      for (const line of lines) {
        const record = recordOf(line);
        if (typeof record === "string") return refuse(record);
        if (record !== null) records.push(record);
      }
      return Effect.succeed(records);
    };

    return textLines(bytes).pipe(
      Stream.chunks,
      Stream.mapEffect(recordsOfSome),
      Stream.flattenIterable,
      Stream.concat(
        Stream.fromEffectDrain(
          Effect.suspend(() =>
            ended ? Effect.void : refuse("it has no end, so that some of it may be missing"),
          ),
        ),
      ),
    );
  });
