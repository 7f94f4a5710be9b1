/**
 * A chatbot: what a client reads of it (section 2.1) and what its operator configured.
 */

/** What an operator decides about one chatbot. */
export interface ChatbotSettings {
  /** The text of the entry that a chat of section 4.2 starts with; `null` turns it off. */
  readonly helloMessage: string | null;
  /** The answer that a flagged question gets (section 2.3). */
  readonly moderationErrorMessage: string;
  /** What the language model is told before the conversation; `null` for nothing. */
  readonly instructions: string | null;
}

/** One chatbot of one workspace: the tenant that every row belongs to. */
export interface Chatbot {
  readonly id: number;
  readonly name: string;
  readonly description: string;
  readonly workspaceName: string;
  readonly settings: ChatbotSettings;
}
