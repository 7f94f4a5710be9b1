/**
 * What random sequences do to a store.
 */
import { Schema } from "effect";

/** Names, references and questions that are easily taken for each other. */
export const modelTexts = [
  "",
  "a",
  "A",
  "a ",
  "b",
  "ab",
  "Äb",
  "äB",
  "%",
  "_",
  "[a]",
  "a_",
  "\\",
  "ß",
  "SS",
  "Σς",
  "\uffee",
  "😀",
] as const;

const Text = Schema.NullOr(Schema.Literals(modelTexts));
const Small = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 9 }));
/** Few, so that they meet. */
const Key = Schema.Int.check(Schema.isBetween({ minimum: 0, maximum: 3 }));
const Chat = Schema.NullOr(Small);

export const ModelOrder = Schema.Array(
  Schema.Struct({ field: Small, descending: Schema.Boolean }),
).check(Schema.isMinLength(1), Schema.isMaxLength(3));

const page = { order: ModelOrder, limit: Small, page: Small, id: Schema.NullOr(Small) };

/** Whether another instance over the same data is told. */
const second = Schema.Boolean;

/** What can be done to a store; numbers stand for rows, keys, fields, pages and turns, whichever there are. */
export const ModelCommand = Schema.Union([
  Schema.Struct({ _tag: Schema.Literal("Create"), second, name: Text, userRef: Text, hello: Text }),
  Schema.Struct({ _tag: Schema.Literal("CreateWithKey"), second, name: Text, key: Key }),
  Schema.Struct({
    _tag: Schema.Literal("Ask"),
    second,
    chat: Chat,
    key: Schema.NullOr(Key),
    question: Text,
    way: Small,
  }),
  Schema.Struct({ _tag: Schema.Literal("Take"), second, chat: Chat, key: Schema.NullOr(Key) }),
  Schema.Struct({ _tag: Schema.Literal("Append"), second, turn: Small, question: Text }),
  Schema.Struct({ _tag: Schema.Literal("Renew"), second, turn: Small }),
  Schema.Struct({ _tag: Schema.Literal("Release"), second, turn: Small }),
  Schema.Struct({ _tag: Schema.Literal("Earlier"), second, turn: Small, entry: Small }),
  Schema.Struct({ _tag: Schema.Literal("List"), second, ...page, search: Text, userRef: Text }),
  Schema.Struct({ _tag: Schema.Literal("History"), second, ...page, chat: Small }),
  Schema.Struct({
    _tag: Schema.Literal("Erase"),
    second,
    which: Schema.Literals(["chat", "userRef", "idle"]),
    chat: Small,
    /** Seldom it ends with a compaction. */
    compact: Small,
  }),
  Schema.Struct({ _tag: Schema.Literal("Usage"), second, chat: Small }),
  /** Seldom it goes into another chatbot, or back into this one. */
  Schema.Struct({ _tag: Schema.Literal("Export"), second, to: Small }),
  /** Goes on with another of the chatbots. */
  Schema.Struct({ _tag: Schema.Literal("Switch"), chatbot: Small }),
  /** A millisecond, half a lease, half a day, a day. */
  Schema.Struct({ _tag: Schema.Literal("Pass"), long: Small }),
]);
export type ModelCommand = typeof ModelCommand.Type;
