/**
 * A chatbot: its details, which clients read, and its settings, which operators change.
 */
import { Schema } from "effect";
import type { ChatbotId } from "./Ids.ts";
import { notBlank, Text } from "./Text.ts";

/** A name, for example of a chatbot or workspace: 1 to 255 code points, not all of them white space. */
export const Name = Text.check(notBlank, Schema.isMaxCodePoints(255));

/** The name of a folder: not a path, not hidden, and without characters that break a log line. */
const FolderName = Name.check(
  Schema.isPattern(/^(?!\.)[^/\\\p{Cc}\p{Zl}\p{Zp}]*$/u, {
    message: "begins with a dot, or contains a slash, backslash, line break or control character",
  }),
);

/** A description, a message or instructions: up to 100,000 code points. */
export const LongText = Text.check(Schema.isMaxCodePoints(100_000));

export const ChatbotSettings = Schema.Struct({
  /** The answer in the hello entry, with which a chat starts unless an ask creates it; `null` or `""` for none. */
  helloMessage: Schema.NullOr(LongText),
  /** The answer to a flagged question. */
  moderationErrorMessage: LongText.check(notBlank),
  /** Instructions at the start of the language model's prompt; `null` for none. */
  instructions: Schema.NullOr(LongText),
  /** The language model, under the name its provider uses; `null` for the default model. */
  model: Schema.NullOr(Name),
  /** How questions are moderated; `null` for the default. */
  moderation: Schema.NullOr(Schema.Literals(["off", "endpoint"])),
  /** The folder of documents to answer from, under the server's name for it; `null` for the default documents. */
  knowledge: Schema.NullOr(FolderName),
  /** The answer to a question that the documents do not answer, without a language model. It may contain Markdown. */
  notFoundMessage: LongText.check(notBlank),
  /**
   * The address of a document on the reader's own site, such as `https://docs.example/{path}#{heading}`; `null` to name
   * sources without a link. `{path}` is the document's path without `.md` or `.txt`, `{heading}` its heading's anchor.
   */
  sourceUrl: Schema.NullOr(
    Text.check(
      Schema.isMaxCodePoints(2000),
      Schema.isPattern(/^(https?:\/\/|\/)[^\s()<>]*$/iu, {
        message:
          "does not begin with http://, https:// or a slash, or contains a space, parenthesis or angle bracket",
      }),
    ),
  ),
  /** Questions that pages suggest before the first one: up to six. */
  suggestedQuestions: Schema.Array(Name).check(Schema.isMaxLength(6)),
  /** The number of days without an entry after which a chat is erased; `null` to keep chats indefinitely. */
  retentionDays: Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum: 36_500 }))),
});
export interface ChatbotSettings extends Schema.Schema.Type<typeof ChatbotSettings> {}

/** The settings of a new chatbot. */
export const defaultSettings: ChatbotSettings = {
  helloMessage: null,
  moderationErrorMessage: "This question cannot be answered, because it violates the usage policy.",
  instructions: null,
  model: null,
  moderation: null,
  knowledge: null,
  notFoundMessage: "The documents do not answer this question.",
  sourceUrl: null,
  suggestedQuestions: [],
  retentionDays: null,
};

/** A chatbot in a workspace. Each chatbot is a tenant: every chat belongs to exactly one chatbot. */
export interface Chatbot {
  readonly id: ChatbotId;
  readonly name: string;
  readonly description: string;
  readonly workspaceName: string;
  readonly settings: ChatbotSettings;
}
