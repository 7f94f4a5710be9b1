/**
 * The values of requests: declared to clients by the API description, and decoded by the server with the same schemas.
 * A `message` names the problem of a value that is of no member's type (see `ValidationErrors`).
 */
import {
  ChatName,
  chatFields,
  entryFields,
  IdempotencyKeyText,
  Limit,
  PageNumber,
  Question,
  Text,
  UserRef,
} from "@parley/core";
import { Schema, SchemaTransformation } from "effect";

/** The body of section 4.2; `null` counts as absent. */
export const CreateChatBody = Schema.Struct({
  name: Schema.optionalKey(Schema.NullOr(ChatName).annotate({ message: "NOT_STRING" })),
  userRef: Schema.optionalKey(
    Schema.NullOr(UserRef).annotate({
      message: "NOT_STRING",
      description: "The client's reference to its own user",
    }),
  ),
}).annotate({
  identifier: "NewChat",
  examples: [{ name: ChatName.make("First steps"), userRef: UserRef.make("user-17") }],
});

/** The body of section 4.5. */
export const AskBody = Schema.Struct({
  chat_id: Schema.optionalKey(
    Schema.NullOr(Schema.Int).annotate({
      message: "NOT_INTEGER",
      description: "The chat to continue; without it the question begins a new chat",
    }),
  ),
  query: Question.annotate({ description: "The question" }),
}).annotate({
  identifier: "Ask",
  examples: [{ query: Question.make("How do I change the port?") }],
});

/** The headers of both POSTs. */
export const postHeaders = {
  "Idempotency-Key": Schema.optionalKey(
    IdempotencyKeyText.annotate({
      description:
        "A key of the client's for this request, 1 to 255 printable ASCII characters. Within 24 hours a repetition of the " +
        "request with the same key gets the first success again, and nothing is stored twice.",
    }),
  ),
};
export const askHeaders = {
  ...postHeaders,
  "On-Disconnect": Schema.optionalKey(
    Schema.Literals(["cancel", "finish"]).annotate({
      message: "NOT_CANCEL_OR_FINISH",
      description:
        "The effect of a hang-up: `finish` the answer and store it, or `cancel` it and store nothing. " +
        "The server's setting is the default, `finish` unless changed.",
    }),
  ),
  "Last-Event-ID": Schema.optionalKey(
    Schema.String.annotate({
      description:
        "The id of the last event that the client received of a stream that broke off. With the `Idempotency-Key` of the " +
        "broken request, the stream goes on there.",
    }),
  ),
};

const digits = Schema.String.check(
  Schema.isPattern(/^[0-9]+$/, { identifier: "digits" }),
  Schema.makeFilter((text: string) => Number.isSafeInteger(Number(text)), { identifier: "digits" }),
);

const Id = Schema.Int.check(
  Schema.isBetween({ minimum: 0, maximum: Number.MAX_SAFE_INTEGER }),
).annotate({ description: "Only the item with this id" });

const fromDigits = <S extends Schema.Codec<number, number>>(number: S) =>
  digits.pipe(
    Schema.decodeTo(
      number,
      SchemaTransformation.transform<number, string>({ decode: Number, encode: String }),
    ),
  );

const spellings =
  "Several values: `{name}=a&{name}=b`, `{name}[]=a&{name}[]=b` or `{name}[0]=a&{name}[1]=b`.";

const list = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  limit: Schema.optionalKey(
    fromDigits(Limit.annotate({ description: "Items per page", default: 25 })),
  ),
  page: Schema.optionalKey(
    fromDigits(PageNumber.annotate({ description: "Number of the page, from 1", default: 1 })),
  ),
  orderBy: Schema.optionalKey(
    Schema.Array(Schema.Literals(fields).annotate({ message: "NOT_A_FIELD" }))
      .check(Schema.isUnique())
      .annotate({
        description:
          "Fields to sort by, in this order. By default the newest items come first. " +
          spellings.replaceAll("{name}", "orderBy"),
      }),
  ),
  desc: Schema.optionalKey(
    Schema.Array(Schema.Literals(["true", "false"]).annotate({ message: "NOT_BOOLEAN" })).annotate({
      description:
        "Whether to sort in descending order: one value for each field of `orderBy`, in its order. Without `orderBy`, one " +
        "value, for `id`. " +
        spellings.replaceAll("{name}", "desc"),
    }),
  ),
  id: Schema.optionalKey(fromDigits(Id)),
});

/** The path of section 4.4. */
export const historyPath = {
  chat_id: Schema.Int.check(
    Schema.isBetween({ minimum: 1, maximum: Number.MAX_SAFE_INTEGER }),
  ).annotate({ description: "The chat", examples: [1] }),
};

/** The query of a list of chats (section 4.3). */
export const chatsQuery = {
  search: Schema.optionalKey(
    Text.annotate({ description: "Only chats whose name contains this text, in any case" }),
  ),
  userRef: Schema.optionalKey(
    Text.annotate({ description: "Only chats with exactly this reference" }),
  ),
  ...list(chatFields),
};

/** The query of a chat's history (section 4.4). */
export const historyQuery = list(entryFields);
