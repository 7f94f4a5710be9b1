/**
 * The values of the contract as the client takes and returns them: with the names and shapes of the wire, so that the
 * interface's documentation holds for them too.
 */

/** Chatbot details (section 2.1). */
export interface ChatbotDetails {
  readonly chatBotName: string;
  readonly chatBotDescription: string;
  readonly workspaceName: string;
}

/** A chat (section 2.2). */
export interface Chat {
  readonly id: number;
  readonly name: string | null;
  readonly userRef: string | null;
  /** ISO 8601 in UTC with milliseconds. */
  readonly _createTime: string;
}

/** A chat history entry (section 2.3). */
export interface Entry {
  readonly id: number;
  readonly chat_id: number;
  readonly question: string;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  /** ISO 8601 in UTC with milliseconds. */
  readonly _createTime: string;
}

/** The body of section 4.2. */
export interface NewChat {
  /** Up to 255 characters. */
  readonly name?: string | null | undefined;
  /** Up to 60 characters. */
  readonly userRef?: string | null | undefined;
}

/** The body of section 4.5. */
export interface Question {
  /** Without it, the service creates a chat. */
  readonly chat_id?: number | null | undefined;
  /** 1 to 200 characters, not only white space. */
  readonly query: string;
}

/** The parameters of every list (sections 4.3 and 4.4). */
export interface ListQuery<Field extends string> {
  /** Rows of a page, 1 to 100; 25 by default. */
  readonly limit?: number | undefined;
  /** The page to begin with; 1 by default. */
  readonly page?: number | undefined;
  readonly orderBy?: Field | ReadonlyArray<Field> | undefined;
  /** One for each field of `orderBy`. */
  readonly desc?: boolean | ReadonlyArray<boolean> | undefined;
  readonly id?: number | undefined;
}

export interface ChatsQuery extends ListQuery<keyof Chat> {
  /** Part of the name, in any case. */
  readonly search?: string | undefined;
  /** The exact value. */
  readonly userRef?: string | undefined;
}

export type HistoryQuery = ListQuery<keyof Entry>;

/** One page of a list; rows and total come from one snapshot. */
export interface Page<A> {
  readonly data: ReadonlyArray<A>;
  /** How many rows match in all. */
  readonly total: number;
  /** Its number, from 1. */
  readonly page: number;
}

/**
 * A list, read as it is iterated: row by row over all pages from the query's `page` on. The default order, newest
 * first, shifts while rows are added; walk a list that grows with `orderBy: "id"`.
 */
export interface List<A> extends AsyncIterable<A> {
  /** The page that the query names. */
  readonly page: () => Promise<Page<A>>;
  /** The same walk, page by page, with the total of each. */
  readonly pages: () => AsyncIterable<Page<A>>;
}

/** An event of a streamed answer. `entry` is the last. */
export type AnswerEvent =
  /** The next piece of the answer. */
  | { readonly type: "delta"; readonly text: string }
  /** The answer begins again: drop the text so far. */
  | { readonly type: "restart" }
  /** The connection broke; the client asks for the rest after the delay. */
  | { readonly type: "reconnecting"; readonly error: Error; readonly delayMillis: number }
  /** The server took up the answer again. */
  | { readonly type: "reconnected" }
  /** The answer is complete and stored. */
  | { readonly type: "entry"; readonly entry: Entry };
