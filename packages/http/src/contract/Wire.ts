/**
 * What goes over the wire: the spec's resources and envelopes (sections 2 and 7), as schemas that
 * the API description is derived from, and the one mapping from the core's records to them.
 */
import type { Chat, Chatbot, Entry, Page } from "@parley/core";
import { Schema } from "effect";

const Id = Schema.Int.annotate({ description: "Positive, below 2^53" });
const Time = Schema.String.annotate({
  description: "ISO 8601 in UTC with milliseconds",
  format: "date-time",
});

export const ChatWire = Schema.Struct({
  id: Id,
  name: Schema.NullOr(Schema.String),
  userRef: Schema.NullOr(Schema.String),
  _createTime: Time,
}).annotate({ identifier: "Chat" });

export const EntryWire = Schema.Struct({
  id: Id,
  chat_id: Id,
  question: Schema.String,
  answer: Schema.String,
  moderation: Schema.String,
  flagged: Schema.Boolean,
  _createTime: Time,
}).annotate({ identifier: "ChatHistoryEntry" });

export const DetailsWire = Schema.Struct({
  chatBotName: Schema.String,
  chatBotDescription: Schema.String,
  workspaceName: Schema.String,
}).annotate({ identifier: "ChatbotDetails" });

const Meta = Schema.Struct({
  total: Schema.Int.annotate({ description: "How many items match in all" }),
});

export const envelope = <S extends Schema.Top>(status: 200 | 201, data: S) =>
  Schema.Struct({ status: Schema.Literal(status), data });

export const listEnvelope = <S extends Schema.Top>(item: S) =>
  Schema.Struct({ status: Schema.Literal(200), data: Schema.Array(item), meta: Meta });

export const chatWire = ({ createTime, id, name, userRef }: Chat): typeof ChatWire.Type => ({
  id,
  name,
  userRef,
  _createTime: createTime.toISOString(),
});

export const entryWire = (entry: Entry): typeof EntryWire.Type => ({
  id: entry.id,
  chat_id: entry.chatId,
  question: entry.question,
  answer: entry.answer,
  moderation: entry.moderation,
  flagged: entry.flagged,
  _createTime: entry.createTime.toISOString(),
});

export const detailsWire = ({
  description,
  name,
  workspaceName,
}: Chatbot): typeof DetailsWire.Type => ({
  chatBotName: name,
  chatBotDescription: description,
  workspaceName,
});

export const pageWire = <A, B>({ items, total }: Page<A>, wire: (item: A) => B) => ({
  status: 200,
  data: items.map(wire),
  meta: { total },
});
