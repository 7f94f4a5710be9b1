/**
 * Response bodies: schemas for resources, envelopes and failures, from which the API description is derived, and
 * functions that encode the core's records.
 */
import type { Chat, Chatbot, Entry, EntryInclude, Page } from "@parley/core";
import { Schema, Stream } from "effect";
import { HttpServerResponse } from "effect/http";

const from = (minimum: number, maximum = Number.MAX_SAFE_INTEGER) =>
  Schema.Int.check(Schema.isBetween({ minimum, maximum }));

const Id = from(1);
const Time = Schema.String.annotate({
  description: "ISO 8601 in UTC with milliseconds",
  format: "date-time",
});

const exampleTime = "2026-01-02T03:04:05.678Z";

/** A field that a row has only if the request asks for it. */
const onRequest = <S extends Schema.Top>(word: string, schema: S) =>
  Schema.optionalKey(schema.annotate({ description: `Only with \`${word}\` in \`include\`` }));

export const ChatWire = Schema.Struct({
  id: Id,
  name: Schema.NullOr(Schema.String),
  userRef: Schema.NullOr(Schema.String),
  _createTime: Time,
  _lastEntryTime: onRequest("activity", Time),
  entries: onRequest("activity", from(0)),
}).annotate({
  identifier: "Chat",
  examples: [{ id: 1, name: "First steps", userRef: "user-17", _createTime: exampleTime }],
});

export const EntryWire = Schema.Struct({
  id: Id,
  chat_id: Id,
  question: Schema.String,
  answer: Schema.String,
  moderation: Schema.String.annotate({
    description: "`none`, or the category of a question that violates the usage policy",
  }),
  flagged: Schema.Boolean.annotate({
    description:
      "Whether the question violates the usage policy; if so, the answer is the chatbot's moderation error message",
  }),
  _createTime: Time,
  metadata: onRequest("metadata", Schema.NullOr(Schema.Record(Schema.String, Schema.Unknown))),
  rating: onRequest("feedback", Schema.NullOr(Schema.Literals(["good", "bad"]))),
  comment: onRequest("feedback", Schema.NullOr(Schema.String)),
}).annotate({
  identifier: "ChatHistoryEntry",
  examples: [
    {
      id: 2,
      chat_id: 1,
      question: "How do I change the port?",
      answer: "Set `PARLEY_PORT`.",
      moderation: "none",
      flagged: false,
      _createTime: exampleTime,
    },
  ],
});

export const StopWire = Schema.Struct({
  stopped: Schema.Boolean,
  entry: Schema.optionalKey(
    EntryWire.annotate({ description: "Only if it was stored before the stop" }),
  ),
}).annotate({ identifier: "Stop", examples: [{ stopped: true }] });

export const DetailsWire = Schema.Struct({
  chatBotName: Schema.String,
  chatBotDescription: Schema.String,
  workspaceName: Schema.String,
}).annotate({
  identifier: "ChatbotDetails",
  examples: [
    {
      chatBotName: "Helpdesk",
      chatBotDescription: "Answers questions about our products",
      workspaceName: "Acme",
    },
  ],
});

export const envelope = <S extends Schema.Top>(status: 200 | 201, data: S) =>
  Schema.Struct({ status: Schema.Literal(status), data });

export const listEnvelope = <S extends Schema.Top>(item: S) =>
  Schema.Struct({
    ...envelope(200, Schema.Array(item)).fields,
    meta: Schema.Struct({
      total: from(0).annotate({ description: "How many items match in total" }),
    }),
  });

const failure = <Fields extends Schema.Struct.Fields>(
  status: number,
  identifier: string,
  fields: Fields,
) => Schema.Struct({ status: Schema.Literal(status), ...fields }).annotate({ identifier });

// A range instead of the current codes, because later versions may add codes.
const codeFields = { code: from(400_000, 5_999_999), message: Schema.String };

export const BadRequest = failure(400, "BadRequest", codeFields);
export const Unauthenticated = failure(401, "Unauthenticated", codeFields);
export const Unauthorized = failure(403, "Unauthorized", codeFields);
export const NotFound = failure(404, "NotFound", codeFields);
export const SystemError = failure(500, "SystemError", codeFields);
export const EndpointNotFound = failure(404, "EndpointNotFound", {
  ...codeFields,
  method: Schema.String,
  path: Schema.String,
});
export const ValidationException = failure(422, "ValidationException", {
  errors: Schema.Array(Schema.Struct({ ...codeFields, path: Schema.Array(Schema.String) })),
});

// Encodes field by field, so that the JSON does not depend on the field order of a store's records.
export const encodeChat = (
  chat: Chat,
  include: ReadonlyArray<"activity"> = [],
): typeof ChatWire.Type => ({
  id: chat.id,
  name: chat.name,
  userRef: chat.userRef,
  _createTime: chat.createTime.toISOString(),
  ...(include.includes("activity") && {
    _lastEntryTime: chat.lastEntryTime!.toISOString(),
    entries: chat.entries!,
  }),
});

export const encodeEntry = (
  entry: Entry,
  include: ReadonlyArray<EntryInclude>,
): typeof EntryWire.Type => ({
  id: entry.id,
  chat_id: entry.chatId,
  question: entry.question,
  answer: entry.answer,
  moderation: entry.moderation,
  flagged: entry.flagged,
  _createTime: entry.createTime.toISOString(),
  ...(include.includes("metadata") && { metadata: entry.metadata! }),
  ...(include.includes("feedback") && { rating: entry.rating!, comment: entry.comment! }),
});

export const encodeDetails = (chatbot: Chatbot): typeof DetailsWire.Type => ({
  chatBotName: chatbot.name,
  chatBotDescription: chatbot.description,
  workspaceName: chatbot.workspaceName,
});

/** Encodes a page of items in a list envelope. */
export const encodePage = <A, B>({ items, total }: Page<A>, encode: (item: A) => B) => ({
  status: 200,
  data: items.map(encode),
  meta: { total },
});

/** The body of a response with the HTTP status `status`, or of an `error` event. */
export type ResponseBody = { readonly status: number; readonly [member: string]: unknown };

/** Headers of every response from the interfaces. They stop browsers guessing its type and caches storing it. */
export const protectiveHeaders = {
  "cache-control": "no-store",
  "x-content-type-options": "nosniff",
};

/** The chunk size of a large response, in bytes. */
const pieceLength = 65_536;

/**
 * Creates a JSON response whose status is the one in `body`. Caches must not store it. A large response is sent in
 * chunks, as fast as the client reads them.
 */
export const toJsonResponse = (
  body: ResponseBody,
  headers?: Readonly<Record<string, string>>,
): HttpServerResponse.HttpServerResponse => {
  const text = JSON.stringify(body);
  const options = {
    status: body.status,
    contentType: "application/json; charset=utf-8",
    headers: { ...protectiveHeaders, ...headers },
  };
  if (text.length <= pieceLength) return HttpServerResponse.text(text, options);
  const bytes = new TextEncoder().encode(text);
  const pieces = Array.from({ length: Math.ceil(bytes.length / pieceLength) }, (_, n) =>
    bytes.subarray(n * pieceLength, (n + 1) * pieceLength),
  );
  // One piece per chunk, because each chunk of the stream is written in one go.
  const stream = Stream.fromIterable(pieces, { chunkSize: 1 });
  return HttpServerResponse.stream(stream, { ...options, contentLength: bytes.length });
};
