/**
 * The client's interface: its calls and their options, and the values of the contract. The values have the names and
 * shapes of the wire, so that the documentation of the HTTP interfaces holds for them, too.
 */

/** Options of a client. */
export interface ClientOptions {
  /** Omit it if a proxy adds it. */
  readonly apiKey?: string | undefined;
  /**
   * Sends the requests; the global `fetch` by default. The `handler` of `makeWebHandler` answers them in this process.
   */
  readonly fetch?:
    | ((
        url: string,
        init: RequestInit & { readonly headers: Record<string, string> },
      ) => Promise<Response>)
    | undefined;
  /** Called with each attempt, when its response begins or when it fails before that. */
  readonly onAttempt?: ((attempt: Attempt) => void) | undefined;
  /**
   * Scheme, host and port of the server. By default the page's own origin in a browser; elsewhere `http://localhost` if
   * `fetch` is given, else none, so that `baseUrl` and `askUrl` must be absolute.
   */
  readonly origin?: string | URL | undefined;
  /** The address of the general interface, absolute or relative to `origin`; `/api` by default. */
  readonly baseUrl?: string | URL | undefined;
  /** The address of the answers interface, absolute or relative to `origin`; `/ask` by default. */
  readonly askUrl?: string | URL | undefined;
  /** Limits the silence of the server within an attempt; 30 seconds by default. */
  readonly timeoutMillis?: number | undefined;
  /** The same for `ask`, whose response begins only when the entry is stored; 120 seconds by default. */
  readonly askTimeoutMillis?: number | undefined;
  /**
   * How many attempts may follow one that failed; 4 by default. Progress of a stream resets the count, but each restart
   * still counts.
   */
  readonly retries?: number | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /** Aborting it ends the call, which rejects with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of the calls that store a chat or an entry. */
export interface PostOptions extends CallOptions {
  /** 1 to 255 printable ASCII characters; a random key by default. */
  readonly idempotencyKey?: string | undefined;
}

/** Options of asks. */
export interface AskOptions extends PostOptions {
  /** Whether the server finishes and stores the answer after the client disconnects; the server decides by default. */
  readonly onDisconnect?: "cancel" | "finish" | undefined;
}

/**
 * A client of one chatbot. Every call repeats a failed attempt if another may succeed, even a POST, which carries an
 * `Idempotency-Key`. A call rejects with a `ResponseError`, `ValidationError`, `ConnectionError` or the signal's
 * reason.
 */
export interface Client {
  /** Reads the chatbot's name and description, and the name of its workspace. */
  readonly details: (options?: CallOptions) => Promise<ChatbotDetails>;
  /** Creates a chat, which begins with the hello message if the chatbot has one. */
  readonly createChat: (chat?: NewChat, options?: PostOptions) => Promise<Chat>;
  /** The chats, newest first by default. */
  readonly chats: (query?: ChatsQuery, options?: CallOptions) => List<Chat>;
  /** The entries of a chat, newest first by default. */
  readonly history: (chatId: number, query?: HistoryQuery, options?: CallOptions) => List<Entry>;
  /** Asks, and resolves once the entry is stored. */
  readonly ask: (question: Question, options?: AskOptions) => Promise<Entry>;
  /**
   * Asks when it is iterated, and yields the answer as it arrives. If the connection breaks, the stream resumes where
   * it broke. Leaving the iteration disconnects.
   */
  readonly stream: (question: Question, options?: AskOptions) => AsyncIterable<AnswerEvent>;
}

/** One HTTP request with its outcome: a response, an error, or both. */
export interface Attempt {
  readonly method: "GET" | "POST";
  readonly url: string;
  /** Without the API key. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  /** When it was sent, in milliseconds since 1970. */
  readonly beganAt: number;
  /** The milliseconds until the response began or the attempt failed. */
  readonly durationMillis: number;
  /** Why there is no successful response. */
  readonly error?: unknown;
}

/** Chatbot details. */
export interface ChatbotDetails {
  readonly chatBotName: string;
  readonly chatBotDescription: string;
  readonly workspaceName: string;
}

/** A chat. */
export interface Chat {
  readonly id: number;
  readonly name: string | null;
  readonly userRef: string | null;
  /** ISO 8601 in UTC with milliseconds. */
  readonly _createTime: string;
}

/** A chat history entry. */
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

/** The fields of a chat to create. */
export interface NewChat {
  /** Up to 255 characters. */
  readonly name?: string | null | undefined;
  /** Up to 60 characters. */
  readonly userRef?: string | null | undefined;
}

/** A question to ask. */
export interface Question {
  /** Without it, the server creates a chat. */
  readonly chat_id?: number | null | undefined;
  /** 1 to 200 characters, not only white space. */
  readonly query: string;
}

/** The parameters of every list. */
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

/** The parameters of the list of chats. */
export interface ChatsQuery extends ListQuery<keyof Chat> {
  /** Part of the name, ignoring case. */
  readonly search?: string | undefined;
  /** The whole `userRef`, with the same case. */
  readonly userRef?: string | undefined;
}

/** The parameters of a chat's history. */
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
 * A list, read as it is iterated: row by row over all pages from the query's `page` on. In the default order, newest
 * first, new rows shift the others to later pages; for a list that grows, use `orderBy: "id"`.
 */
export interface List<A> extends AsyncIterable<A> {
  /** Reads only the page that the query names, by default the first. */
  readonly page: () => Promise<Page<A>>;
  /** The same rows page by page, each page with the total at that time. */
  readonly pages: () => AsyncIterable<Page<A>>;
}

/** An event of a streamed answer. `entry` is the last. */
export type AnswerEvent =
  /** The next delta of the answer's text. */
  | { readonly type: "delta"; readonly text: string }
  /** The answer starts again: drop the text so far. */
  | { readonly type: "restart" }
  /** An attempt failed or broke off; the client asks for the rest after the delay. */
  | { readonly type: "reconnecting"; readonly error: Error; readonly delayMillis: number }
  /** The server responds again, and the answer continues. */
  | { readonly type: "reconnected" }
  /** The answer is complete and stored. */
  | { readonly type: "entry"; readonly entry: Entry };
