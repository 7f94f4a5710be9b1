/** The settings that the server passes to the window. Anyone can read them. */
export interface WidgetConfig {
  /** The name of the chatbot. */
  readonly name: string;
  readonly general: string;
  readonly answers: string;
  readonly answersPort: number | null;
  /** The origins of the pages that may show the window. */
  readonly origins: ReadonlyArray<string>;
  /** The maximum length of a question, in code points. */
  readonly questionLength: number;
  /** Whether a language model answers. */
  readonly model: boolean;
}

/** What a page shows before the first question. */
export interface Welcome {
  /** The chatbot's first message. */
  readonly greeting: string | null;
  /** Questions that the chatbot's owner suggests. */
  readonly questions: ReadonlyArray<string>;
  /** Whether the holder may delete chats. */
  readonly mayDelete: boolean;
}

export const noWelcome: Welcome = { greeting: null, questions: [], mayDelete: false };
