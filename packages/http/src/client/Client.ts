/**
 * A client of both interfaces on `fetch`, for browsers and Node 20 or later.
 */
import type {
  AnswerEvent,
  Chat,
  ChatbotDetails,
  ChatsQuery,
  Entry,
  HistoryQuery,
  List,
  NewChat,
  Question,
} from "./Resources.ts";

/** Options of {@link makeClient}. */
export interface ClientOptions {
  /** Scheme, host and port of the server. In a browser, the page's own origin by default. */
  readonly origin?: string | URL | undefined;
  /** The address of the general interface, absolute or relative to `origin`; `/api` by default. */
  readonly baseUrl?: string | URL | undefined;
  /** The address of the answers interface, absolute or relative to `origin`; `/ask` by default. */
  readonly askUrl?: string | URL | undefined;
  /** Left out where a proxy adds it. */
  readonly apiKey?: string | undefined;
  /** How long the server may be silent before an attempt counts as failed; 30 seconds by default. */
  readonly timeoutMillis?: number | undefined;
  /** Attempts after the first, counted anew when a stream has gone on; 3 by default. */
  readonly retries?: number | undefined;
  /** In place of the global `fetch`. */
  readonly fetch?: typeof fetch | undefined;
  /** Called after each attempt's response headers or failure, for logs and metrics. */
  readonly onAttempt?: ((attempt: Attempt) => void) | undefined;
}

/** One HTTP request with its outcome: a response, or the error in its place. */
export interface Attempt {
  readonly method: "GET" | "POST";
  readonly url: string;
  /** Without the API key. */
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: string | undefined;
  readonly status?: number | undefined;
  readonly requestId?: string | undefined;
  /** What failed: no response, or one with a failure. */
  readonly error?: Error | undefined;
}

/** Options of every call. */
export interface CallOptions {
  /** Ends the call with the signal's reason. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of the calls that store. */
export interface PostOptions extends CallOptions {
  /** 1 to 255 printable ASCII characters; a random one by default. */
  readonly idempotencyKey?: string | undefined;
}

/** Options of asks. */
export interface AskOptions extends PostOptions {
  /** Whether the server finishes and stores the answer after the client hangs up; the server decides by default. */
  readonly onDisconnect?: "cancel" | "finish" | undefined;
}

/**
 * A client of one chatbot. Every call repeats attempts that failed without an answer, also POSTs: they carry an
 * `Idempotency-Key`. It rejects with a `ResponseError`, `ValidationError`, `ConnectionError` or the signal's reason.
 */
export interface Client {
  /** Section 4.1. */
  readonly details: (options?: CallOptions) => Promise<ChatbotDetails>;
  /** Section 4.2. */
  readonly createChat: (chat?: NewChat, options?: PostOptions) => Promise<Chat>;
  /** Section 4.3. */
  readonly chats: (query?: ChatsQuery, options?: CallOptions) => List<Chat>;
  /** Section 4.4. */
  readonly history: (chatId: number, query?: HistoryQuery, options?: CallOptions) => List<Entry>;
  /** Section 4.5: resolves once the entry is stored. */
  readonly ask: (question: Question, options?: AskOptions) => Promise<Entry>;
  /**
   * Asks, and yields the answer as it arrives. If the connection breaks, the stream takes up the answer where it was.
   * Leaving the iteration hangs up.
   */
  readonly stream: (question: Question, options?: AskOptions) => AsyncIterable<AnswerEvent>;
}

/** Makes a client; it opens no connection before the first call. */
export const makeClient = (_options: ClientOptions = {}): Client => {
  throw new Error("not yet");
};
