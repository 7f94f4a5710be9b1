/**
 * The format of an export: newline-delimited JSON, with one line for each chat, followed by one line for each of its
 * entries. Fields have the same names as on the wire, and an entry includes its usage, metadata and feedback. The first
 * line gives the version of the format; an import does without fields of later versions. The last line gives the numbers
 * of chats and entries, so that an import detects a truncated export.
 */
import { Effect, Schema, Stream } from "effect";
import { ImportRefused } from "../model/Errors.ts";
import { listSchemaErrors } from "../model/SchemaErrors.ts";
import { ratings } from "../model/Entry.ts";
import { MetadataObject } from "../model/Metadata.ts";
import { ChatName, Comment, Text, UserRef } from "../model/Text.ts";
import type { ArchiveRecord } from "../ports/ChatArchive.ts";

const count = (maximum: number, minimum = 0) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }));
const Count = count(Number.MAX_SAFE_INTEGER);
const Id = count(Number.MAX_SAFE_INTEGER, 1);
const StoredChatId = Id.pipe(Schema.brand("ChatId"));
const Time = Schema.String.check(
  Schema.makeFilter(
    (text: string) => {
      const time = new Date(text);
      // `Date` also accepts other formats, and reads 30 February as a day in March.
      const isTime = !Number.isNaN(time.getTime()) && time.toISOString() === text;
      return isTime || "must be a time such as 2026-01-31T09:30:00.000Z";
    },
    { identifier: "time" },
  ),
);

/** The version of the format that this file writes. */
const version = 1;

const Line = Schema.Struct({
  version: Schema.optionalKey(Schema.Int),
  chat: Schema.optionalKey(
    Schema.Struct({
      id: StoredChatId,
      name: Schema.NullOr(ChatName),
      userRef: Schema.NullOr(UserRef),
      _createTime: Time,
    }),
  ),
  entry: Schema.optionalKey(
    Schema.Struct({
      id: Id,
      chat_id: StoredChatId,
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
          attempts: count(2 ** 31 - 1),
          latencyMillis: Count,
        }),
      ),
      metadata: Schema.optionalKey(Schema.NullOr(MetadataObject)),
      rating: Schema.optionalKey(Schema.NullOr(Schema.Literals(ratings))),
      comment: Schema.optionalKey(Schema.NullOr(Comment)),
    }),
  ),
  end: Schema.optionalKey(Schema.Struct({ chats: Count, entries: Count })),
}).check(Schema.makeFilter((line) => Object.keys(line).length === 1));

const decodeLine = Schema.decodeUnknownEffect(Schema.fromJsonString(Line), {
  onExcessProperty: "error",
});

const encodeLine = (line: typeof Line.Encoded): string => `${JSON.stringify(line)}\n`;

const encodeRecord = (record: ArchiveRecord): string => {
  if (record._tag === "Chat") {
    const { createTime, id, name, userRef } = record.chat;
    return encodeLine({ chat: { id, name, userRef, _createTime: createTime.toISOString() } });
  }
  const { usage } = record;
  const { answer, chatId: chat_id, createTime, flagged, id, moderation, question } = record.entry;
  const { comment = null, metadata = null, rating = null } = record.entry;
  const _createTime = createTime.toISOString();
  const texts = { question, answer, moderation, flagged };
  const added = { metadata, rating, comment };
  return encodeLine({ entry: { id, chat_id, ...texts, _createTime, usage, ...added } });
};

/** Encodes the records as the lines of an export, each with its line break. */
export const encodeArchive = <E, R>(
  records: Stream.Stream<ArchiveRecord, E, R>,
): Stream.Stream<string, E, R> =>
  Stream.suspend(() => {
    const end = { chats: 0, entries: 0 };
    const lines = records.pipe(
      Stream.map((record) => {
        end[record._tag === "Chat" ? "chats" : "entries"]++;
        return encodeRecord(record);
      }),
      Stream.concat(Stream.fromEffect(Effect.sync(() => encodeLine({ end })))),
    );
    return Stream.concat(Stream.make(encodeLine({ version })), lines);
  });

const refuse = (reason: string) => Effect.fail(new ImportRefused({ reason }));

/** Decodes UTF-8 and splits the text into lines; fails on bytes that are not UTF-8, and on NUL. */
const textLines = <E, R>(
  bytes: Stream.Stream<Uint8Array, E, R>,
): Stream.Stream<string, E | ImportRefused, R> =>
  Stream.suspend(() => {
    const decoder = new TextDecoder("utf-8", { fatal: true });
    const decode = (chunk?: Uint8Array) =>
      Effect.try({
        try: () => {
          const text = decoder.decode(chunk, { stream: chunk !== undefined });
          // JSON text contains no NUL, but UTF-16 that is decoded as UTF-8 does.
          if (text.includes("\0")) throw new TypeError();
          return text;
        },
        catch: () => new ImportRefused({ reason: "the export is not UTF-8" }),
      });
    return bytes.pipe(
      Stream.mapEffect(decode),
      Stream.concat(Stream.fromEffect(Effect.suspend(() => decode()))),
      Stream.splitLines,
    );
  });

/**
 * Decodes the records of an export in UTF-8. Fails with `ImportRefused` at the first invalid line, with its line number
 * in the reason, or if the last line is missing or has wrong counts. The reason quotes no text from the export.
 */
export const decodeArchive = <E, R>(
  bytes: Stream.Stream<Uint8Array, E, R>,
): Stream.Stream<ArchiveRecord, E | ImportRefused, R> =>
  Stream.suspend(() => {
    const read = { chats: 0, entries: 0 };
    let hasEnded = false;
    let lineNumber = 0;

    /** Decodes the record in a line; returns `null` for a blank line and for the line with the counts. */
    const decodeRecord = Effect.fnUntraced(function* (text: string) {
      lineNumber++;
      if (text.trim() === "") return null;
      const line = yield* Effect.catch(decodeLine(text), (error) =>
        refuse(`line ${lineNumber} is not a valid export line${describeProblem(error)}`),
      );
      if (hasEnded) return yield* refuse(`line ${lineNumber} comes after the line with the counts`);
      if (line.version !== undefined) {
        if (lineNumber > 1)
          return yield* refuse(`line ${lineNumber} is the first line of an export`);
        if (line.version <= version) return null;
        return yield* refuse(
          `the export has version ${line.version} of the format, and this Parley reads version ${version}`,
        );
      }
      if (line.chat !== undefined) {
        read.chats++;
        const { _createTime, ...chat } = line.chat;
        return { _tag: "Chat", chat: { ...chat, createTime: new Date(_createTime) } } as const;
      }
      if (line.entry !== undefined) {
        read.entries++;
        const { _createTime, chat_id: chatId, id, usage, ...texts } = line.entry;
        const entry = { id, chatId, ...texts, createTime: new Date(_createTime) };
        return { _tag: "Entry", entry, usage } as const;
      }
      hasEnded = true;
      const { chats, entries } = line.end!;
      if (chats === read.chats && entries === read.entries) return null;
      return yield* refuse(
        `the counts in the last line (chats: ${chats}, entries: ${entries}) do not match the export (chats: ${read.chats}, entries: ${read.entries})`,
      );
    });

    const end = Effect.suspend(() =>
      hasEnded
        ? Effect.void
        : refuse("the last line, with the counts, is missing, so other lines may be missing, too"),
    );
    return textLines(bytes).pipe(
      Stream.mapEffect(decodeRecord),
      Stream.filter((record) => record !== null),
      Stream.concat(Stream.fromEffectDrain(end)),
    );
  });

/**
 * Describes the first invalid field. Returns an empty string if the field's name may be user text, because it is too
 * long or contains characters that no field name has.
 */
const describeProblem = (error: Schema.SchemaError): string => {
  const [problem] = listSchemaErrors(error);
  return problem !== undefined && /^[\w.]{1,40}$/.test(problem.field)
    ? `: ${problem.field}: ${problem.message}`
    : "";
};
