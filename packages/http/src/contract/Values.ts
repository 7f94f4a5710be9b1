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
  userRef: Schema.optionalKey(Schema.NullOr(UserRef).annotate({ message: "NOT_STRING" })),
}).annotate({ identifier: "NewChat" });

/** The body of section 4.5. */
export const AskBody = Schema.Struct({
  chat_id: Schema.optionalKey(Schema.NullOr(Schema.Int).annotate({ message: "NOT_INTEGER" })),
  query: Question,
}).annotate({ identifier: "Ask" });

/** The headers of both POSTs. */
export const postHeaders = {
  "idempotency-key": Schema.optionalKey(
    IdempotencyKeyText.annotate({
      description: "1 to 255 printable ASCII characters; a repeated request gets the first answer",
    }),
  ),
};

const digits = Schema.String.check(
  Schema.isPattern(/^[0-9]+$/, { identifier: "digits" }),
  Schema.makeFilter((text: string) => Number.isSafeInteger(Number(text)), { identifier: "digits" }),
);

const fromDigits = <S extends Schema.Codec<number, number>>(number: S) =>
  digits.pipe(
    Schema.decodeTo(
      number,
      SchemaTransformation.transform<number, string>({ decode: Number, encode: String }),
    ),
  );

const list = <const Fields extends ReadonlyArray<string>>(fields: Fields) => ({
  limit: Schema.optionalKey(fromDigits(Limit)),
  page: Schema.optionalKey(fromDigits(PageNumber)),
  orderBy: Schema.optionalKey(
    Schema.Array(Schema.Literals(fields).annotate({ message: "NOT_A_FIELD" })).check(
      Schema.isUnique(),
    ),
  ),
  desc: Schema.optionalKey(
    Schema.Array(Schema.Literals(["true", "false"]).annotate({ message: "NOT_BOOLEAN" })),
  ),
  id: Schema.optionalKey(fromDigits(Schema.Int)),
});

/** The query of a list of chats (section 4.3). */
export const ChatsQuery = Schema.Struct({
  search: Schema.optionalKey(Text),
  userRef: Schema.optionalKey(Text),
  ...list(chatFields),
});

/** The query of a chat's history (section 4.4). */
export const HistoryQuery = Schema.Struct(list(entryFields));
