/**
 * A chatbot: what a client reads of it (section 2.1) and what its operator configured.
 */
import { Schema } from "effect";
import { notBlank, Text } from "./Text.ts";

/** The name of a chatbot or a workspace: 1 to 255 code points, not white space alone. */
export const Name = Text.check(notBlank, Schema.isMaxCodePoints(255));

/** One folder, never a path that leads elsewhere, on one line of a log. */
const FolderName = Name.check(
  Schema.isPattern(/^(?!\.)[^/\\\p{Cc}\p{Zl}\p{Zp}]*$/u, { message: "is no name of a folder" }),
);

/** What a chatbot says or is told: up to 100,000 code points. */
export const LongText = Text.check(Schema.isMaxCodePoints(100_000));

/** What an operator decides about one chatbot. */
export const ChatbotSettings = Schema.Struct({
  /** The text of the entry that a chat of section 4.2 starts with; `null` or `""` turns it off. */
  helloMessage: Schema.NullOr(LongText),
  /** The answer that a flagged question gets (section 2.3). */
  moderationErrorMessage: LongText.check(notBlank),
  /** What the language model is told before the conversation; `null` for nothing. */
  instructions: Schema.NullOr(LongText),
  /** The language model to ask, by the name that its provider knows; `null` for the usual one. */
  model: Schema.NullOr(Name),
  /** Who judges questions; `null` for the usual judge. */
  moderation: Schema.NullOr(Schema.Literals(["off", "words", "endpoint"])),
  /** The folder of documents to answer from, by its name below the usual one; `null` for that. */
  knowledge: Schema.NullOr(FolderName),
  /** After how many days without an entry a chat is erased; `null` for never. */
  retentionDays: Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 36_500 }))),
});
export interface ChatbotSettings extends Schema.Schema.Type<typeof ChatbotSettings> {}

/** What a chatbot does as long as nobody decided otherwise. */
export const defaultSettings: ChatbotSettings = {
  helloMessage: null,
  moderationErrorMessage: "This question cannot be answered, because it violates the usage policy.",
  instructions: null,
  model: null,
  moderation: null,
  knowledge: null,
  retentionDays: null,
};

/** One chatbot of one workspace: the tenant that every row belongs to. */
export interface Chatbot {
  readonly id: number;
  readonly name: string;
  readonly description: string;
  readonly workspaceName: string;
  readonly settings: ChatbotSettings;
}
