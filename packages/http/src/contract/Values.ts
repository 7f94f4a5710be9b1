/**
 * The values of requests: declared to clients by the API description, and decoded by the server with the same schemas.
 * The `problem` of a check, and the `message` of a schema for a value of another type, end the messages about invalid
 * values (see `ValidationErrors`).
 */
import {
  ChatName,
  IdempotencyKeyText,
  Limit,
  PageNumber,
  Question,
  Text,
  UserRef,
} from "@parley/core";
import { Schema, SchemaTransformation } from "effect";

const notInteger = { problem: "NOT_INTEGER" };

/** A value that may be missing. */
const optional = <S extends Schema.Top>(description: string, schema: S) =>
  Schema.optionalKey(schema.annotate({ description }));

/** The body of a new chat; `null` counts as absent. */
export const CreateChatBody = Schema.Struct({
  name: Schema.optionalKey(Schema.NullOr(ChatName).annotate({ message: "NOT_STRING" })),
  userRef: optional(
    "The client's reference to its own user",
    Schema.NullOr(UserRef).annotate({ message: "NOT_STRING" }),
  ),
}).annotate({
  identifier: "NewChat",
  examples: [{ name: "First steps", userRef: "user-17" }],
});

/** The body of an ask. */
export const AskBody = Schema.Struct({
  chat_id: optional(
    "The chat to continue; without it the question begins a new chat",
    Schema.NullOr(Schema.Number.check(Schema.isInt(notInteger))).annotate({
      message: "NOT_INTEGER",
    }),
  ),
  query: Question.annotate({ description: "The question" }),
}).annotate({
  identifier: "Ask",
  examples: [{ query: "How do I change the port?" }],
});

/** The headers of both POSTs. */
export const postHeaders = {
  "Idempotency-Key": optional(
    "A key of the client's for this request, 1 to 255 printable ASCII characters. Within 24 hours a repetition of the " +
      "request with the same key gets the first success again, and nothing is stored twice.",
    IdempotencyKeyText,
  ),
};
export const askHeaders = {
  ...postHeaders,
  "On-Disconnect": optional(
    "The effect of a hang-up: `finish` the answer and store it, or `cancel` it and store nothing. " +
      "The server's setting is the default, `finish` unless changed.",
    Schema.Literals(["cancel", "finish"]).annotate({ message: "NOT_CANCEL_OR_FINISH" }),
  ),
  "Last-Event-ID": optional(
    "The id of the last event that the client received of a stream that broke off. With the `Idempotency-Key` of the " +
      "broken request, the stream goes on there.",
    Schema.String,
  ),
};

const from = (minimum: number) =>
  Schema.Number.check(
    Schema.isInt(notInteger),
    Schema.isBetween({ minimum, maximum: Number.MAX_SAFE_INTEGER }, notInteger),
  );

const digits = Schema.String.check(
  Schema.isPattern(/^[0-9]+$/, notInteger),
  Schema.makeFilter((text: string) => Number.isSafeInteger(Number(text)), notInteger),
);

const optionalNumber = <S extends Schema.Codec<number, number>>(number: S) =>
  Schema.optionalKey(
    digits.pipe(
      Schema.decodeTo(
        number,
        SchemaTransformation.transform<number, string>({ decode: Number, encode: String }),
      ),
    ),
  );

const spellings = (name: string) =>
  `Several values: \`${name}=a&${name}=b\`, \`${name}[]=a&${name}[]=b\` or \`${name}[0]=a&${name}[1]=b\`.`;

const list = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  limit: optionalNumber(Limit.annotate({ description: "Items per page", default: 25 })),
  page: optionalNumber(
    PageNumber.annotate({ description: "Number of the page, from 1", default: 1 }),
  ),
  orderBy: optional(
    `Fields to sort by, in this order. By default the newest items come first. ${spellings("orderBy")}`,
    Schema.Array(Schema.Literals(fields).annotate({ message: "NOT_A_FIELD" })).check(
      Schema.isUnique({ problem: "REPEATED" }),
    ),
  ),
  desc: optional(
    "Whether to sort in descending order: one value for each field of `orderBy`, in its order. Without `orderBy`, one " +
      `value, for \`id\`. ${spellings("desc")}`,
    Schema.Array(
      Schema.Literals(["true", "false"])
        .annotate({ message: "NOT_BOOLEAN" })
        .pipe(
          Schema.decodeTo(
            Schema.Boolean,
            SchemaTransformation.transform<boolean, "true" | "false">({
              decode: (text) => text === "true",
              encode: (descending) => (descending ? "true" : "false"),
            }),
          ),
        ),
    ),
  ),
  id: optionalNumber(from(0).annotate({ description: "Only the item with this id" })),
});

/** The path of a history. */
export const historyPath = {
  chat_id: from(1).annotate({ description: "The chat", examples: [1] }),
};

/** The query of a list of chats. */
export const chatsQuery = {
  search: optional("Only chats whose name contains this text, in any case", Text),
  userRef: optional("Only chats with exactly this reference", Text),
  ...list(["id", "name", "userRef", "_createTime"]),
};

/** The query of a chat's history. */
export const historyQuery = list([
  "id",
  "chat_id",
  "question",
  "answer",
  "moderation",
  "flagged",
  "_createTime",
]);
