/**
 * A client for the general and answers interfaces, based on `fetch`, for browsers and Node 20.19 or later.
 */
import {
  anySignal,
  ConnectionError,
  refuseUnknown,
  retryDelayMillis,
  send,
  sleep,
  toResponseError,
  type ClientRequest,
} from "./Connection.ts";
import type * as api from "./Interface.ts";

const optionNames =
  "apiKey fetch onAttempt origin baseUrl askUrl timeoutMillis askTimeoutMillis retries".split(" ");

/** Creates a client, which opens no connection before the first call. Throws a `TypeError` if an option is unknown. */
export const makeClient = (options: api.ClientOptions = {}): api.Client => {
  refuseUnknown("makeClient", options, optionNames);
  const {
    askTimeoutMillis = 120_000,
    askUrl = "/ask",
    baseUrl = "/api",
    origin,
    retries = 4,
    timeoutMillis = 30_000,
    ...connection
  } = options;
  // A `fetch` that calls a handler in this process needs no real host.
  const site = origin ?? globalThis.location?.origin ?? (connection.fetch && "http://localhost");
  const base = new URL(baseUrl, site).href.replace(/\/$/, "");
  const ask = new URL(askUrl, site).href;

  const call = async (request: ClientRequest): Promise<any> => {
    for (let failures = 0; ; failures++) {
      try {
        let json = "";
        for await (const { text } of send(connection, request)) json += text;
        return parseBody(json);
      } catch (error) {
        await sleep(retryDelayMillis(error, failures, retries), request.signal);
      }
    }
  };
  const toRequest = (
    method: api.Attempt["method"],
    address: string,
    { include = [], signal }: api.IncludeOptions<string> = {},
    body?: object,
  ): ClientRequest => {
    const url = new URL(address);
    if (include.length > 0) url.searchParams.set("include", include.join());
    const content = body && { "content-type": "application/json" };
    const json = body && JSON.stringify(body);
    return { method, url: url.href, headers: { ...content }, body: json, timeoutMillis, signal };
  };
  const toPost = (
    address: string,
    body: object,
    { idempotencyKey = randomKey(), onDisconnect, ...options }: api.AskOptions = {},
  ): ClientRequest => {
    const { headers, ...request } = toRequest("POST", address, options, body);
    const disconnect = onDisconnect && { "on-disconnect": onDisconnect };
    return {
      ...request,
      headers: { ...headers, "idempotency-key": idempotencyKey, ...disconnect },
    };
  };

  const list = <A>(
    path: string,
    { include, ...query }: api.ListQuery<string> & Pick<api.IncludeOptions<string>, "include"> = {},
    options?: api.CallOptions,
  ): api.List<A> => {
    const { limit = 25, page: first = 1 } = query;
    const read = async (page: number): Promise<api.Page<A>> => {
      const address = `${base}${path}?${toSearch({ ...query, page })}`;
      const { data, meta } = await call(toRequest("GET", address, { ...options, include }));
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

  const read = async (request: ClientRequest) => (await call(request)).data;
  /** For requests whose turn may come only after an answer. */
  const inTurn = (request: ClientRequest) => read({ ...request, timeoutMillis: askTimeoutMillis });
  const toChat = (chatId: number) => `${base}/chats/${chatId}`;
  return {
    details: (options) => read(toRequest("GET", `${base}/details`, options)),
    createChat: (chat = {}, options) => read(toPost(`${base}/chats`, chat, options)),
    chats: (query, options) => list("/chats", query, options),
    history: (chatId, query, options) => list(`/chats/${chatId}/history`, query, options),
    rename: (chatId, name, options) => read(toRequest("PATCH", toChat(chatId), options, { name })),
    delete: (chatId, options) => read(toRequest("DELETE", toChat(chatId), options)),
    rate: (chatId, entryId, feedback, options) =>
      read(toRequest("PATCH", `${toChat(chatId)}/history/${entryId}`, options, feedback)),
    post: (chatId, text, { metadata, ...options } = {}) =>
      inTurn(toPost(`${toChat(chatId)}/history`, { text, metadata }, options)),
    stop: (idempotencyKey, options) => {
      const request = toRequest("DELETE", ask, options);
      return read({ ...request, headers: { "idempotency-key": idempotencyKey } });
    },
    ask: (question, options) => inTurn(toPost(ask, question, options)),
    stream: (question, options) => {
      const request = toPost(ask, question, options);
      return {
        [Symbol.asyncIterator]: () => {
          const controller = new AbortController();
          const signal = anySignal(controller.signal, request.signal);
          const events = streamAnswer(connection, retries, { ...request, signal });
          return {
            next: () => events.next(),
            // A generator's own `return` would wait for the next event.
            return: () => {
              controller.abort();
              return events.return();
            },
          };
        },
      };
    },
  };
};

/** Parses the body of a successful response; throws if it is not Parley's but, for example, a captive portal's. */
const parseBody = (text: string) => {
  try {
    const body = JSON.parse(text);
    if (body.data) return body;
  } catch {}
  throw new ConnectionError("Not a response from Parley");
};

/** Avoids `randomUUID`, which is not available on pages without TLS. */
const randomKey = (): string =>
  crypto
    .getRandomValues(new Uint8Array(16))
    .reduce((key, byte) => key + byte.toString(16).padStart(2, "0"), "");

const toSearch = (query: object): URLSearchParams =>
  new URLSearchParams(
    Object.entries(query).flatMap(([name, value]) =>
      value === undefined ? [] : [value].flat().map((item) => [name, String(item)]),
    ),
  );

/**
 * Yields the events of an ask. If the connection breaks, the idempotency key in the headers of `request` and the id of
 * the last event let the server resume the answer.
 */
async function* streamAnswer(
  options: api.ClientOptions,
  retries: number,
  request: ClientRequest,
): AsyncGenerator<api.AnswerEvent, void> {
  let headers: ClientRequest["headers"] = { ...request.headers, accept: "text/event-stream" };
  let turnId: string | undefined;
  let isReconnecting = false;
  let restarts = 0;
  for (let failures = 0; ; failures++) {
    try {
      for await (const event of readEvents(send(options, { ...request, headers }))) {
        const { data, id, name, requestId } = event;
        if (isReconnecting) yield { type: "reconnected" };
        isReconnecting = false;
        if (name === "error") throw toResponseError(data.status, data, requestId);
        // Comments have no id.
        if (id === "") continue;
        headers = { ...headers, "last-event-id": id };
        const [current] = id.split(".");
        if (turnId !== undefined && turnId !== current) {
          restarts++;
          yield { type: "restart" };
        }
        turnId = current;
        // Each restart counts as a failure: a client must not pay again and again for an answer that always breaks off.
        failures = restarts;
        if (name === "delta") yield { type: "delta", text: data.text };
        if (name === "entry") {
          yield { type: "entry", entry: data.data };
          return;
        }
      }
      throw new ConnectionError("The stream ended too early");
    } catch (error) {
      const delayMillis = retryDelayMillis(error, failures, retries);
      isReconnecting = true;
      yield { type: "reconnecting", error: error as Error, delayMillis };
      await sleep(delayMillis, request.signal);
    }
  }
}

/** Yields the server-sent events of a response. Comments have empty fields; an event that is cut off is dropped. */
async function* readEvents(response: ReturnType<typeof send>) {
  let rest = "";
  for await (const { requestId, text } of response) {
    const blocks = (rest + text).split("\n\n");
    rest = blocks.pop()!;
    for (const block of blocks) {
      // Not `.` or `^`, for which U+2028 and U+2029 end a line.
      const field = (name: string) =>
        new RegExp(`(?:^|\n)${name}: ([^\n]*)`).exec(block)?.[1] ?? "";
      const data = field("data");
      yield {
        name: field("event"),
        id: field("id"),
        data: data === "" ? undefined : JSON.parse(data),
        requestId,
      };
    }
  }
}
