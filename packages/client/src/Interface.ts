/**
 * The client's interface: its calls and their options, and the values in requests and responses. These values have the
 * same names and shapes as in the HTTP interfaces, whose documentation applies to them, too.
 */

/** Options for a client. */
export interface ClientOptions {
  /** The API key; omit it if a proxy adds one. */
  readonly apiKey?: string | undefined;
  /** Sends the requests; the global `fetch` by default. The `handler` from `makeWebHandler` answers them in-process. */
  readonly fetch?:
    | ((
        url: string,
        init: RequestInit & { readonly headers: Record<string, string> },
      ) => Promise<Response>)
    | undefined;
  /** Called for each attempt, when a successful response begins or when the attempt fails before that. */
  readonly onAttempt?: ((attempt: Attempt) => void) | undefined;
  /**
   * The scheme, host and port of the server. In a browser, the default is the page's own origin; elsewhere, it is
   * `http://localhost` if `fetch` is given. Otherwise, `baseUrl` and `askUrl` must be absolute.
   */
  readonly origin?: string | URL | undefined;
  /** The address of the general interface, absolute or relative to `origin`; `/api` by default. */
  readonly baseUrl?: string | URL | undefined;
  /** The address of the answers interface, absolute or relative to `origin`; `/ask` by default. */
  readonly askUrl?: string | URL | undefined;
  /** How long the server may be silent during an attempt; 30 seconds by default. */
  readonly timeoutMillis?: number | undefined;
  /** The same for `ask` and `post`, whose responses begin only once the entry is stored; 120 seconds by default. */
  readonly askTimeoutMillis?: number | undefined;
  /**
   * How many times a failed attempt may be retried; 4 by default. Progress in a stream resets the count, but each
   * restart still counts.
   */
  readonly retries?: number | undefined;
}

/** Options for every call. */
export interface CallOptions {
  /** Aborting the signal ends the call, which rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options for calls that store a chat or an entry. */
export interface PostOptions extends CallOptions {
  /** 1 to 255 printable ASCII characters; a random key by default. */
  readonly idempotencyKey?: string | undefined;
}

/** What each chat has in addition, on request: `_lastEntryTime` and `entries`. */
export type ChatInclude = "activity";

/** What each entry has in addition, on request: `metadata`; `rating` and `comment`. */
export type EntryInclude = "metadata" | "feedback";

/** Options for calls that return a chat or an entry with additional fields. */
export interface IncludeOptions<Word extends string> extends CallOptions {
  readonly include?: ReadonlyArray<Word> | undefined;
}

/** Options for posts. */
export interface EntryOptions extends PostOptions, IncludeOptions<EntryInclude> {
  /** A JSON object of at most 16 KiB and 100 levels: `{ author: "Ann" }` marks an entry that a person wrote. */
  readonly metadata?: Metadata | null | undefined;
}

/** Options for asks. */
export interface AskOptions extends PostOptions, IncludeOptions<EntryInclude> {
  /** Whether the server finishes and stores the answer after the client disconnects; the server decides by default. */
  readonly onDisconnect?: "cancel" | "finish" | undefined;
}

/**
 * A client for one chatbot. Every call retries a failed attempt if a retry may succeed. This is safe even for a POST,
 * which carries an `Idempotency-Key`. A call rejects with a `ResponseError`, `ValidationError`, `ConnectionError` or
 * the signal's reason.
 */
export interface Client {
  /** Reads the chatbot's name and description, and the name of its workspace. */
  readonly details: (options?: CallOptions) => Promise<ChatbotDetails>;
  /** Creates a chat, which begins with the hello message if the chatbot has one. */
  readonly createChat: (chat?: NewChat, options?: PostOptions) => Promise<Chat>;
  /** Lists the chats, newest first by default. */
  readonly chats: (query?: ChatsQuery, options?: CallOptions) => List<Chat>;
  /** Lists the entries of a chat, newest first by default. */
  readonly history: (chatId: number, query?: HistoryQuery, options?: CallOptions) => List<Entry>;
  /** Gives a chat another name of up to 255 characters, or none. */
  readonly rename: (
    chatId: number,
    name: string | null,
    options?: IncludeOptions<ChatInclude>,
  ) => Promise<Chat>;
  /**
   * Erases a chat with everything in it, and returns the chat as it was. If the response to an attempt is lost, the
   * retry finds no chat and rejects with status 404. The key needs the scope `delete`.
   */
  readonly delete: (chatId: number, options?: CallOptions) => Promise<Chat>;
  /** Changes an entry's rating or comment, and returns the entry with both. */
  readonly rate: (
    chatId: number,
    entryId: number,
    feedback: FeedbackChange,
    options?: IncludeOptions<EntryInclude>,
  ) => Promise<Entry>;
  /**
   * Stores an entry without a question, such as a colleague's answer. The text has 1 to 10,000 characters. The key needs
   * the scope `post`.
   */
  readonly post: (chatId: number, text: string, options?: EntryOptions) => Promise<Entry>;
  /** Asks a question, and resolves once the entry is stored. */
  readonly ask: (question: Question, options?: AskOptions) => Promise<Entry>;
  /**
   * Asks a question once it is iterated, and yields the answer as it arrives. If the connection breaks, the stream
   * resumes where it left off. Breaking out of the loop disconnects.
   */
  readonly stream: (question: Question, options?: AskOptions) => AsyncIterable<AnswerEvent>;
  /**
   * Stops the ask with this idempotency key, whichever server answers it. Nothing is then stored, and each request with
   * the key fails with `ANSWER_STOPPED` for 24 hours. Resolves to the entry if it was stored first; rejects with status
   * 404 if no server knows the ask.
   */
  readonly stop: (
    idempotencyKey: string,
    options?: IncludeOptions<EntryInclude>,
  ) => Promise<StopResult>;
}

/** The outcome of a stop: `stopped` if nothing is stored; otherwise the entry that was stored first. */
export type StopResult =
  | { readonly stopped: true }
  | { readonly stopped: false; readonly entry: Entry };

/** One HTTP request with its outcome: a response, an error, or both. */
export interface Attempt {
  readonly method: "GET" | "POST" | "PATCH" | "DELETE";
  readonly url: string;
  /** Without the API key. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  /** The time at which the request was sent, in milliseconds since the Unix epoch. */
  readonly beganAt: number;
  /** The time until the response began or the attempt failed, in milliseconds. */
  readonly durationMillis: number;
  /** Why there is no successful response. */
  readonly error?: unknown;
}

export interface ChatbotDetails {
  readonly chatBotName: string;
  readonly chatBotDescription: string;
  readonly workspaceName: string;
}

export interface Chat {
  readonly id: number;
  readonly name: string | null;
  readonly userRef: string | null;
  /** ISO 8601 in UTC with milliseconds. */
  readonly _createTime: string;
  /** When the newest entry was created or, without an entry, the chat. Present with `include: ["activity"]`. */
  readonly _lastEntryTime?: string;
  /** The number of entries. Present with `include: ["activity"]`. */
  readonly entries?: number;
}

/** A JSON object that is kept with an entry, such as the `sources` of an answer. */
export type Metadata = Readonly<Record<string, unknown>>;

/** An entry in a chat's history: a question and its answer. */
export interface Entry {
  readonly id: number;
  readonly chat_id: number;
  /** Empty in an entry without a question; see {@link hasQuestion}. */
  readonly question: string;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  /** ISO 8601 in UTC with milliseconds. */
  readonly _createTime: string;
  /** Present with `include: ["metadata"]`. */
  readonly metadata?: Metadata | null;
  /** Present with `include: ["feedback"]`, like `comment`. */
  readonly rating?: "good" | "bad" | null;
  readonly comment?: string | null;
}

/** Whether a user asked: neither the hello message nor a posted entry has a question. */
export const hasQuestion = ({ question }: Pick<Entry, "question">): boolean => question !== "";

/** The fields of an entry's feedback to change: `null` clears a field, and an absent field stays. */
export interface FeedbackChange {
  readonly rating?: "good" | "bad" | null | undefined;
  /** Up to 1,000 characters. */
  readonly comment?: string | null | undefined;
}

/** The fields of a chat to create. */
export interface NewChat {
  /** Up to 255 characters. */
  readonly name?: string | null | undefined;
  /** Up to 60 characters. */
  readonly userRef?: string | null | undefined;
}

export interface Question {
  /** The chat to ask in; if absent or `null`, the server creates one. */
  readonly chat_id?: number | null | undefined;
  /** 1 to 200 characters, or as many as the server's operator allows; not all of them white space. */
  readonly query: string;
}

/** The query parameters for every list. */
export interface ListQuery<Field extends string> {
  /** Rows per page, 1 to 100; 25 by default. */
  readonly limit?: number | undefined;
  /** The first page to read; 1 by default. */
  readonly page?: number | undefined;
  readonly orderBy?: Field | ReadonlyArray<Field> | undefined;
  /** One value for each field of `orderBy`. */
  readonly desc?: boolean | ReadonlyArray<boolean> | undefined;
  readonly id?: number | undefined;
}

/** The query parameters for the list of chats. */
export interface ChatsQuery extends ListQuery<Exclude<keyof Chat, "entries">> {
  readonly include?: ReadonlyArray<ChatInclude> | undefined;
  /** Text that the chat's name contains, ignoring case. */
  readonly search?: string | undefined;
  /** The exact `userRef`; case-sensitive. */
  readonly userRef?: string | undefined;
}

/** The query parameters for a chat's history. */
export interface HistoryQuery extends ListQuery<
  Exclude<keyof Entry, "metadata" | "rating" | "comment">
> {
  readonly include?: ReadonlyArray<EntryInclude> | undefined;
  /** Only entries with greater ids. */
  readonly after?: number | undefined;
}

/** A page of a list. Its rows and the total come from the same snapshot. */
export interface Page<A> {
  readonly data: ReadonlyArray<A>;
  /** How many rows match in all. */
  readonly total: number;
  /** The page number, starting at 1. */
  readonly page: number;
}

/**
 * A list that is read as it is iterated: row by row across all pages, starting at the query's `page`. In the default
 * order, newest first, new rows shift older rows to later pages; for a list that grows, use `orderBy: "id"`.
 */
export interface List<A> extends AsyncIterable<A> {
  /** Reads only the page that the query names, by default the first. */
  readonly page: () => Promise<Page<A>>;
  /** Reads the same rows page by page. Each page has the total at the time it was read. */
  readonly pages: () => AsyncIterable<Page<A>>;
}

/** An event in a streamed answer. If the stream succeeds, its last event is `entry`. */
export type AnswerEvent =
  /** The next delta of the answer's text. */
  | { readonly type: "delta"; readonly text: string }
  /** The answer starts again: discard the text received so far. */
  | { readonly type: "restart" }
  /** An attempt failed or its response broke off; the client requests the rest after the delay. */
  | { readonly type: "reconnecting"; readonly error: Error; readonly delayMillis: number }
  /** The server responds again, and the answer continues. */
  | { readonly type: "reconnected" }
  /** The answer is complete and stored. */
  | { readonly type: "entry"; readonly entry: Entry };
