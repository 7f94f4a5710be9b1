/**
 * Schemas for the values in requests. The API description declares them to clients, and the server decodes with them. A
 * message about an invalid value ends with the `problem` of the failed check or, if the value has the wrong type, with
 * the `message` of the schema. `ValidationErrors`, `RequestValues` and `ErrorResponses` define further endings.
 */
import {
  chatIncludes,
  ChatName,
  Comment,
  entryIncludes,
  IdempotencyKeyText,
  Limit,
  postMetadataProblem,
  PageNumber,
  PostText,
  questionOf,
  ratings,
  Text,
  UserRef,
} from "@parley/core";
import { Schema, SchemaTransformation } from "effect";

const notInteger = { problem: "NOT_INTEGER" };

/** Describes a value and makes it optional. */
const optional = <S extends Schema.Top>(description: string, schema: S) =>
  Schema.optionalKey(schema.annotate({ description }));

/** The body of a request that creates a chat. A `null` member counts as absent. */
export const CreateChatBody = Schema.Struct({
  name: Schema.optionalKey(Schema.NullOr(ChatName).annotate({ message: "NOT_STRING" })),
  userRef: optional(
    "Reference to one of your own users",
    Schema.NullOr(UserRef).annotate({ message: "NOT_STRING" }),
  ),
}).annotate({
  identifier: "NewChat",
  examples: [{ name: "First steps", userRef: "user-17" }],
});

/** The body of a request that renames a chat. */
export const ChangeChatBody = Schema.Struct({
  name: Schema.optionalKey(Schema.NullOr(ChatName).annotate({ message: "NOT_STRING" })),
}).annotate({ identifier: "ChatChange", examples: [{ name: "First steps" }] });

const notRating = { message: "NOT_GOOD_OR_BAD" };

/** The body of a request that rates an entry. */
export const ChangeEntryBody = Schema.Struct({
  rating: Schema.optionalKey(
    Schema.NullOr(Schema.Literals(ratings).annotate(notRating)).annotate(notRating),
  ),
  comment: Schema.optionalKey(Schema.NullOr(Comment).annotate({ message: "NOT_STRING" })),
}).annotate({ identifier: "Feedback", examples: [{ rating: "good" }] });

/** A check of an entry's metadata for one kind of what `postMetadataProblem` may find. */
const metadataCheck = (problem: string, kind: RegExp) =>
  Schema.makeFilter<unknown>(
    (value) => value === null || !kind.test(postMetadataProblem(value) ?? "") || problem,
    { problem, toJsonSchema: () => [{ type: ["object", "null"] }, true] },
  );

/** The body of a request that posts an entry. */
export const PostEntryBody = Schema.Struct({
  text: PostText.annotate({ description: "What the entry says" }),
  metadata: optional(
    "A JSON object of at most 16 KiB and 100 levels to keep with the entry. An `author` of at most 60 characters marks an " +
      "entry that a person wrote.",
    Schema.Unknown.check(
      metadataCheck("NOT_OBJECT", /^is not/),
      metadataCheck("TOO_LARGE", /^has more/),
      metadataCheck("NOT_STORABLE", /^contains/),
      metadataCheck("AUTHOR_INVALID", /^has an `author`/),
    ),
  ),
}).annotate({
  identifier: "Post",
  examples: [{ text: "I have refunded the order.", metadata: { author: "Ann" } }],
});

/** The body of an ask, whose question has at most this many characters. */
export const askBodyOf = (questionLength: number) =>
  Schema.Struct({
    chat_id: optional(
      "Chat to continue; if omitted, the question starts a new chat",
      Schema.NullOr(
        Schema.Number.check(Schema.isInt(notInteger)).pipe(Schema.brand("ChatId")),
      ).annotate({ message: "NOT_INTEGER" }),
    ),
    query: questionOf(questionLength).annotate({ description: "Question or instruction" }),
  }).annotate({
    identifier: "Ask",
    examples: [{ query: "How do I change the port?" }],
  });

/** Headers that all POST endpoints accept. */
export const postHeaders = {
  "Idempotency-Key": optional(
    "A unique key for this request, 1 to 255 printable ASCII characters. For 24 hours, repeating the request with the " +
      "same key returns the first successful response, and nothing is stored twice.",
    IdempotencyKeyText,
  ),
};
/** Headers of a request that stops an ask. */
export const stopHeaders = {
  "Idempotency-Key": IdempotencyKeyText.annotate({ description: "The key of the ask to stop" }),
};
export const askHeaders = {
  ...postHeaders,
  "On-Disconnect": optional(
    "What happens if the client disconnects: `finish` and store the answer, or `cancel` it and store nothing. " +
      "The server sets the default, usually `finish`.",
    Schema.Literals(["cancel", "finish"]).annotate({ message: "NOT_CANCEL_OR_FINISH" }),
  ),
  "Last-Event-ID": optional(
    "Id of the last event that the client received before the stream was interrupted. If the request repeats the " +
      "interrupted request's `Idempotency-Key`, the stream continues from there.",
    Schema.String,
  ),
};

const from = (minimum: number) =>
  Schema.Number.check(
    Schema.isInt(notInteger),
    Schema.isBetween({ minimum, maximum: Number.MAX_SAFE_INTEGER }, notInteger),
  );

const optionalNumber = <S extends Schema.Codec<number, number>>(number: S) =>
  Schema.optionalKey(
    Schema.String.check(Schema.isPattern(/^[0-9]+$/, notInteger)).pipe(
      Schema.decodeTo(
        number,
        SchemaTransformation.transform<number, string>({ decode: Number, encode: String }),
      ),
    ),
  );

/** The parameter with which a client asks for more of a row: words, separated by commas. */
const includeOf = <const Word extends string>(words: ReadonlyArray<Word>, description: string) => {
  const list = Schema.Array(Schema.Literals(words).annotate({ message: "NOT_A_FIELD" }));
  const split = SchemaTransformation.transform<ReadonlyArray<Word>, string>({
    decode: (text) => text.split(",") as Array<Word>,
    encode: String,
  });
  const include = Schema.String.pipe(Schema.decodeTo(list.annotate({ description }), split));
  return { include: Schema.optionalKey(include) };
};
export const includeOfChat = includeOf(
  chatIncludes,
  "What to add to each chat: `activity` (`_lastEntryTime` and `entries`)",
);
export const includeOfEntry = includeOf(
  entryIncludes,
  "What to add to each entry: `metadata`, `feedback` (`rating` and `comment`) or both",
);

const spellings = (name: string) =>
  `Write several values as \`${name}=a&${name}=b\`, \`${name}[]=a&${name}[]=b\` or \`${name}[0]=a&${name}[1]=b\`.`;

const list = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  limit: optionalNumber(Limit.annotate({ description: "Items per page", default: 25 })),
  page: optionalNumber(
    PageNumber.annotate({ description: "Page number, starting at 1", default: 1 }),
  ),
  orderBy: optional(
    `Fields to sort by, the most significant first. By default, the newest items come first. ${spellings("orderBy")}`,
    Schema.Array(Schema.Literals(fields).annotate({ message: "NOT_A_FIELD" })).check(
      Schema.isUnique({ problem: "REPEATED" }),
    ),
  ),
  desc: optional(
    "Whether to sort in descending order: one value for each field in `orderBy`, in the same order. Without `orderBy`, " +
      `a single value applies to \`id\`. ${spellings("desc")}`,
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

/** The path parameters of a chat and of an entry. */
export const chatPath = {
  chat_id: from(1).annotate({ description: "The chat's id", examples: [1] }),
};
export const entryPath = {
  ...chatPath,
  entry_id: from(1).annotate({ description: "The entry's id", examples: [2] }),
};

/** The query parameters for listing chats. */
export const chatsQuery = {
  search: optional("Only chats whose name contains this text, ignoring case", Text),
  userRef: optional("Only chats with exactly this `userRef`", Text),
  ...list(["id", "name", "userRef", "_createTime", "_lastEntryTime"]),
  ...includeOfChat,
};

/** The query parameters for a chat's history. */
export const historyQuery = {
  ...list(["id", "chat_id", "question", "answer", "moderation", "flagged", "_createTime"]),
  after: optionalNumber(from(0).annotate({ description: "Only entries with greater ids" })),
  ...includeOfEntry,
};
