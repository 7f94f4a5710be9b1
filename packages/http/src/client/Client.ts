/**
 * A client of both interfaces on `fetch`, for browsers and Node 20 or later.
 */
import { streamAnswer } from "./AnswerStream.ts";
import {
  anySignal,
  retryDelayMillis,
  send,
  sleep,
  type ClientRequest,
  type ConnectionOptions,
} from "./Connection.ts";
import type {
  AnswerEvent,
  Chat,
  ChatbotDetails,
  ChatsQuery,
  Entry,
  HistoryQuery,
  List,
  ListQuery,
  NewChat,
  Page,
  Question,
} from "./Resources.ts";

/** Options of {@link makeClient}. */
export interface ClientOptions extends ConnectionOptions {
  /** Scheme, host and port of the server. In a browser, the page's own origin by default. */
  readonly origin?: string | URL | undefined;
  /** The address of the general interface, absolute or relative to `origin`; `/api` by default. */
  readonly baseUrl?: string | URL | undefined;
  /** The address of the answers interface, absolute or relative to `origin`; `/ask` by default. */
  readonly askUrl?: string | URL | undefined;
  /** Limits the silence of the server within an attempt; 30 seconds by default. */
  readonly timeoutMillis?: number | undefined;
  /** The same for `ask`, which is silent until the answer is complete; 120 seconds by default. */
  readonly askTimeoutMillis?: number | undefined;
  /** How many attempts may follow one that failed; a stream that goes on counts anew. 4 by default. */
  readonly retries?: number | undefined;
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

/** Makes a client. It opens no connection before the first call. */
export const makeClient = ({
  askTimeoutMillis = 120_000,
  askUrl = "/ask",
  baseUrl = "/api",
  origin = globalThis.location?.origin,
  retries = 4,
  timeoutMillis = 30_000,
  ...connection
}: ClientOptions = {}): Client => {
  const base = new URL(baseUrl, origin).href.replace(/\/$/, "");
  const ask = new URL(askUrl, origin).href;

  const call = async (request: ClientRequest): Promise<any> => {
    for (let failures = 0; ; failures++) {
      try {
        let json = "";
        for await (const { text } of send(connection, request)) json += text;
        return JSON.parse(json);
      } catch (error) {
        await sleep(retryDelayMillis(error, failures, retries), request.signal);
      }
    }
  };
  const get = (path: string, { signal }: CallOptions = {}) =>
    call({ method: "GET", url: base + path, headers: {}, timeoutMillis, signal });

  const toPost = (
    url: string,
    body: object,
    { idempotencyKey = randomKey(), onDisconnect, signal }: AskOptions = {},
  ): ClientRequest => ({
    method: "POST",
    url,
    headers: {
      "content-type": "application/json",
      "idempotency-key": idempotencyKey,
      ...(onDisconnect !== undefined && { "on-disconnect": onDisconnect }),
    },
    body: JSON.stringify(body),
    timeoutMillis,
    signal,
  });

  const list = <A>(path: string, query: ListQuery<string> = {}, options?: CallOptions): List<A> => {
    const { limit = 25, page: first = 1 } = query;
    const read = async (page: number): Promise<Page<A>> => {
      const { data, meta } = await get(`${path}?${toSearch({ ...query, page })}`, options);
      return { data, total: meta.total, page };
    };
    async function* pages() {
      for (let number = first; ; number++) {
        const page = await read(number);
        yield page;
        if (number * limit >= page.total) return;
      }
    }
    return {
      page: () => read(first),
      pages,
      async *[Symbol.asyncIterator]() {
        for await (const { data } of pages()) yield* data;
      },
    };
  };

  return {
    details: async (options) => (await get("/details", options)).data,
    createChat: async (chat = {}, options) =>
      (await call(toPost(`${base}/chats`, chat, options))).data,
    chats: (query, options) => list("/chats", query, options),
    history: (chatId, query, options) => list(`/chats/${chatId}/history`, query, options),
    ask: async (question, options) =>
      (await call({ ...toPost(ask, question, options), timeoutMillis: askTimeoutMillis })).data,
    stream: (question, options) => {
      const request = toPost(ask, question, options);
      return {
        [Symbol.asyncIterator]: () => {
          const hangUp = new AbortController();
          const signal = anySignal(hangUp.signal, request.signal);
          const events = streamAnswer(connection, retries, { ...request, signal });
          return {
            next: () => events.next(),
            // A generator's own `return` would wait for the next event.
            return: () => {
              hangUp.abort();
              return events.return();
            },
          };
        },
      };
    },
  };
};

/** Not `randomUUID`, which pages without TLS lack. */
const randomKey = (): string =>
  crypto.getRandomValues(new Uint8Array(16)).reduce((key, byte) => key + byte.toString(16), "");

const toSearch = (query: object): URLSearchParams =>
  new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined ? [] : [value].flat().map((one) => [name, String(one)]),
    ),
  );
