/**
 * Validates the arguments that no service checks. Every check rejects unknown fields.
 */
import { Layer, Schema, Struct } from "effect";
import { PointInTime } from "../model/ApiKey.ts";
import { ChatbotSettings, LongText, Name } from "../model/Chatbot.ts";
import { IdempotencyKeyText } from "../model/IdempotencyKey.ts";
import { ChatId } from "../model/Ids.ts";
import { ChatQuery, EntryQuery } from "../model/ListQuery.ts";
import { makeCheck } from "../model/SchemaErrors.ts";
import { Text } from "../model/Text.ts";

const functionOrLayer = Schema.declare(
  (value): value is Function | Layer.Any => typeof value === "function" || Layer.isLayer(value),
  { expected: "a function or a layer" },
);

export const options = makeCheck(
  Schema.Struct({
    store: Schema.declare((value): value is Layer.Any => Layer.isLayer(value), {
      expected: "a store, such as memory() or postgres(url)",
    }),
    answerer: functionOrLayer,
    moderator: functionOrLayer,
    actor: Name,
    answerMillis: Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 3_600_000 })),
  }),
);

export const declaration = makeCheck(
  Schema.Struct({
    workspace: Name,
    name: Name,
    description: Schema.optionalKey(LongText),
    ...ChatbotSettings.mapFields(Struct.map(Schema.optionalKey)).fields,
  }),
);

export const idempotency = makeCheck(
  Schema.Struct({ idempotencyKey: Schema.optional(IdempotencyKeyText) }),
);

export const chats = makeCheck(ChatQuery);
export const entries = makeCheck(Schema.Struct({ ...EntryQuery.fields, chatId: ChatId }));

export const erasure = makeCheck(
  Schema.Struct({
    chatId: Schema.optionalKey(Schema.Int),
    userRef: Schema.optionalKey(Text),
    idleSince: Schema.optionalKey(PointInTime),
  }).check(
    Schema.makeFilter(
      (which) =>
        Object.keys(which).length === 1 ||
        'Expected "all", or exactly one of chatId, userRef and idleSince',
    ),
  ),
);

export const usage = makeCheck(
  Schema.Struct({
    since: PointInTime,
    by: Schema.NullOr(Schema.Literals(["day", "key", "userRef"])),
  }),
);

export const exportFilter = makeCheck(Schema.Struct({ userRef: Schema.optionalKey(Text) }));
