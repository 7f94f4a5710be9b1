/**
 * HTTP for the contract suite: requests over `node:http`, raw bytes over a socket, and the response shapes from
 * docs/interface.md. `send` and `raw` check every response against these shapes, so a test states only what is special
 * about its case.
 */
import { request as httpRequest } from "node:http";
import { connect } from "node:net";
import { expect } from "vitest";

/** A running server under test. A key named after a scope has only that scope. */
export interface Target {
  /** Base address of the general interface, `http://127.0.0.1:PORT/api`. */
  readonly baseUrl: string;
  /** Base address of the answers interface, `http://127.0.0.1:PORT/ask`. */
  readonly askUrl: string;
  /** Origin of the listener that also serves addresses outside the base addresses. */
  readonly origin: string;
  readonly key: string;
  readonly readKey: string;
  readonly writeKey: string;
  readonly askKey: string;
  readonly deleteKey: string;
  readonly postKey: string;
  /** A key with all scopes, also `delete` and `post`, which `key` has not. */
  readonly fullKey: string;
  /** A key with all scopes, for another chatbot on the same server. */
  readonly otherKey: string;
  /** A key with all scopes, for a chatbot without a hello message. */
  readonly noHelloKey: string;
  /** A key with a budget of 1000 tokens a day. */
  readonly budgetedKey: string;
  /** A key with a rate limit of two requests a minute. */
  readonly limitedKey: string;
  readonly expiredKey: string;
  /** A well-formed key that belongs to no chatbot. */
  readonly unknownKey: string;
  /** Absent from servers of others, which have no such pages, ids or answers: see `skipUnlessOurs`. */
  readonly isOurs: true;
  readonly chatBot: {
    readonly name: string;
    readonly description: string;
    readonly workspaceName: string;
    readonly helloMessage: string;
    readonly moderationErrorMessage: string;
  };
}

export type Server = () => Target;

/**
 * Skips a test on servers of others. They may number each chatbot's chats on its own, answer without metadata, serve no
 * pages, and see only request targets that a proxy has rewritten.
 */
export const skipUnlessOurs = (server: Server): void => expect(server().isOurs).toBe(true);

export type RequestHeaders = Readonly<Record<string, string | ReadonlyArray<string>>>;

/** `path` is the request target exactly as it is sent. */
export interface PlainRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: RequestHeaders;
  readonly body?: string | Uint8Array;
}

export interface Answer {
  readonly method: string;
  readonly status: number;
  /** Names are in lower case; the values of a repeated header are joined with a comma and a space. */
  readonly headers: Readonly<Record<string, string>>;
  readonly text: string;
  /** The parsed text if the content type is JSON, or else undefined. */
  readonly body: any;
}

export interface Chat {
  readonly id: number;
  readonly name: string | null;
  readonly userRef: string | null;
  readonly _createTime: string;
  readonly _lastEntryTime?: string;
  readonly entries?: number;
}

export interface Entry {
  readonly id: number;
  readonly chat_id: number;
  readonly question: string;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  readonly _createTime: string;
  readonly metadata?: unknown;
  readonly rating?: string | null;
  readonly comment?: string | null;
}

export interface Page<A> {
  readonly data: ReadonlyArray<A>;
  readonly total: number;
}

export const basePath = (target: Target): string => new URL(target.baseUrl).pathname;
export const askPath = (target: Target): string => new URL(target.askUrl).pathname;

const makeAnswer = (
  method: string,
  status: number,
  headers: Record<string, string>,
  bytes: Uint8Array,
): Answer => {
  const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  const isJson = (headers["content-type"] ?? "").startsWith("application/json");
  return {
    method,
    status,
    headers,
    text,
    body: isJson && text !== "" ? JSON.parse(text) : undefined,
  };
};

/** Sends a request on its own connection, without checking the response. Rejects if no response arrives. */
export const exchange = (origin: string, request: PlainRequest): Promise<Answer> =>
  new Promise((resolve, reject) => {
    const { hostname, port } = new URL(origin);
    const body = request.body === undefined ? undefined : Buffer.from(request.body as string);
    const outgoing = httpRequest(
      {
        agent: false,
        hostname,
        port,
        method: request.method,
        path: request.path,
        headers: {
          ...(request.headers as Record<string, string | Array<string>>),
          ...(body === undefined || "transfer-encoding" in request.headers
            ? {}
            : { "content-length": String(body.length) }),
        },
      },
      (incoming) => {
        const chunks: Array<Buffer> = [];
        incoming.on("data", (chunk: Buffer) => chunks.push(chunk));
        incoming.on("error", reject);
        incoming.on("end", () => {
          const headers: Record<string, string> = {};
          for (const [name, values] of Object.entries(incoming.headersDistinct))
            headers[name] = (values ?? []).join(", ");
          try {
            resolve(
              makeAnswer(request.method, incoming.statusCode ?? 0, headers, Buffer.concat(chunks)),
            );
          } catch (error) {
            reject(error);
          }
        });
      },
    );
    outgoing.on("error", reject);
    outgoing.end(body);
  });

/** The first response in the bytes, or `undefined` until it is complete. A body must have a `Content-Length`. */
const parseAnswer = (bytes: Buffer, method: string) => {
  const headEnd = bytes.indexOf("\r\n\r\n");
  if (headEnd < 0) return undefined;
  const [statusLine = "", ...lines] = bytes.subarray(0, headEnd).toString("latin1").split("\r\n");
  const status = Number(/^HTTP\/1\.[01] (\d{3})(?: |$)/.exec(statusLine)?.[1]);
  expect(status, `status line ${JSON.stringify(statusLine)}`).toBeGreaterThanOrEqual(100);
  const headers: Record<string, string> = {};
  for (const line of lines) {
    const colon = line.indexOf(":");
    const name = line.slice(0, colon).toLowerCase();
    const value = line.slice(colon + 1).trim();
    headers[name] = headers[name] === undefined ? value : `${headers[name]}, ${value}`;
  }
  const start = headEnd + 4;
  const end = start + (method === "HEAD" || status < 200 ? 0 : Number(headers["content-length"]));
  if (bytes.length < end) return undefined;
  const answer = makeAnswer(method, status, headers, bytes.subarray(start, end));
  return { answer, rest: bytes.subarray(end) };
};

export interface RawResult {
  /** Final responses in order, without interim ones (1xx). */
  readonly answers: ReadonlyArray<Answer>;
  readonly interim: ReadonlyArray<number>;
}

/**
 * Sends the bytes unchanged over one connection, and returns an answer for each of the `methods` (by default, only the
 * method in the first piece), or fewer if the server closes the connection first. Checks the shape of each answer. With
 * `end`, half-closes the connection after the last piece. Rejects if the server neither answers nor closes the
 * connection within `timeout`, four seconds by default.
 */
export const raw = async (
  origin: string,
  pieces: ReadonlyArray<string | Uint8Array>,
  options: {
    readonly methods?: ReadonlyArray<string>;
    readonly end?: boolean;
    /** Milliseconds. */
    readonly timeout?: number;
  } = {},
): Promise<RawResult> => {
  const methods = options.methods ?? [/^[A-Z]+/.exec(String(pieces[0]))?.[0] ?? "GET"];
  const answers: Array<Answer> = [];
  const interim: Array<number> = [];
  const { hostname, port } = new URL(origin);
  const socket = connect({ host: hostname, port: Number(port), allowHalfOpen: true });
  let received: Buffer = Buffer.alloc(0);
  const parse = () => {
    while (answers.length < methods.length) {
      const parsed = parseAnswer(received, methods[answers.length]!);
      if (parsed === undefined) return false;
      received = parsed.rest;
      if (parsed.answer.status < 200) interim.push(parsed.answer.status);
      else {
        expectShape(parsed.answer);
        answers.push(parsed.answer);
      }
    }
    return true;
  };
  await new Promise<void>((resolve, reject) => {
    socket.on("data", (chunk: Buffer) => {
      received = Buffer.concat([received, chunk]);
      try {
        if (parse()) resolve();
      } catch (error) {
        reject(error);
      }
    });
    // A server may close the connection while bytes are still being sent. The responses before that count.
    for (const event of ["end", "error", "close"]) socket.on(event, () => resolve());
    setTimeout(() => {
      reject(new Error(`no answer in time; received ${JSON.stringify(received.toString())}`));
    }, options.timeout ?? 4000).unref();
    for (const piece of pieces) socket.write(piece);
    if (options.end === true) socket.end();
  }).finally(() => socket.destroy());
  if (answers.length < methods.length)
    expect(received.toString("latin1"), "half an answer").toBe("");
  return { answers, interim };
};

/** The text of a request: the request line, the header lines, an empty line and the body. */
export const requestText = (line: string, headers: ReadonlyArray<string>, body = ""): string =>
  [line, ...headers, "", body].join("\r\n");

const statuses = [200, 201, 400, 401, 403, 404, 422, 500];
const identifier = /^[A-Z][A-Z0-9_]*$/;
const messageOfCode = new Map<number, string>();

/** Checks the code, and that its message is the same as in earlier responses. */
const expectCode = (code: unknown, message: unknown, pattern: RegExp): void => {
  expect(Number.isSafeInteger(code), `code ${String(code)}`).toBe(true);
  expect(String(code)).toMatch(pattern);
  expect(message).toMatch(identifier);
  const earlier = messageOfCode.get(code as number);
  if (earlier === undefined) messageOfCode.set(code as number, message as string);
  else expect(message, `message of code ${String(code)}`).toBe(earlier);
};
messageOfCode.set(404011, "CHAT_DOES_NOT_EXISTS");
messageOfCode.set(4222055, "ASK_DTO_QUERY_NOT_PRESENT");
messageOfCode.set(400001, "INVALID_PATH");

const expectKeys = (value: unknown, keys: ReadonlyArray<string>): void =>
  expect(Object.keys(value as object).toSorted()).toEqual(keys.toSorted());

const expectId = (id: unknown): void => {
  expect(Number.isSafeInteger(id) && (id as number) > 0, `id ${String(id)}`).toBe(true);
};

const expectTime = (time: unknown): void => {
  expect(time).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
  expect(new Date(time as string).toISOString()).toBe(time);
};

const expectText = (text: unknown): void => {
  expect(text).toBeTypeOf("string");
  expect((text as string).isWellFormed()).toBe(true);
};

/** The fields that a row has because the request's `include` names them. */
const extraFields = (words: ReadonlyArray<string>): ReadonlyArray<string> => [
  ...(words.includes("activity") ? ["_lastEntryTime", "entries"] : []),
  ...(words.includes("metadata") ? ["metadata"] : []),
  ...(words.includes("feedback") ? ["rating", "comment"] : []),
];

const expectChat = (chat: Chat, words: ReadonlyArray<string> = []): void => {
  expectKeys(chat, ["id", "name", "userRef", "_createTime", ...extraFields(words)]);
  expectId(chat.id);
  if (chat.name !== null) expectText(chat.name);
  if (chat.userRef !== null) expectText(chat.userRef);
  expectTime(chat._createTime);
};

const expectEntry = (entry: Entry, words: ReadonlyArray<string> = []): void => {
  expectKeys(entry, [
    "id",
    "chat_id",
    "question",
    "answer",
    "moderation",
    "flagged",
    "_createTime",
    ...extraFields(words),
  ]);
  expectId(entry.id);
  expectId(entry.chat_id);
  expectText(entry.question);
  expectText(entry.answer);
  expect(entry.answer).not.toBe("");
  expectText(entry.moderation);
  expect(entry.flagged).toBeTypeOf("boolean");
  expectTime(entry._createTime);
};

const expectDatum = (datum: any, words: ReadonlyArray<string>): void => {
  if ("stopped" in datum) {
    expectKeys(datum, datum.stopped ? ["stopped"] : ["stopped", "entry"]);
    if (!datum.stopped) expectEntry(datum.entry, words);
  } else if ("chat_id" in datum) expectEntry(datum, words);
  else if ("id" in datum) expectChat(datum, words);
  else {
    expectKeys(datum, ["chatBotName", "chatBotDescription", "workspaceName"]);
    for (const text of Object.values(datum)) expectText(text);
  }
};

/**
 * Checks that the answer has one of the shapes in docs/interface.md, and that its body repeats the HTTP status. `path` is
 * the request's target.
 */
const expectShape = (answer: Answer, path = ""): void => {
  const words = (/[?&]include=([^&]*)/.exec(path)?.[1] ?? "").split(",");
  if (answer.method === "PATCH" && /\/history\//.test(path)) words.push("feedback");
  const { body, status } = answer;
  expect(statuses, answer.text).toContain(status);
  expect(answer.headers["content-type"]).toBe("application/json; charset=utf-8");
  expect(answer.headers["cache-control"]).toBe("no-store");
  expect(answer.headers["x-request-id"]).toMatch(/^[A-Za-z0-9._-]{1,128}$/);
  if (answer.method === "HEAD") {
    expect(answer.text).toBe("");
    return;
  }
  expect(body, answer.text).toBeTypeOf("object");
  expect(body.status).toBe(status);
  if (status === 200 || status === 201) {
    expect(status).toBe(answer.method === "POST" ? 201 : 200);
    if (Array.isArray(body.data)) {
      expectKeys(body, ["status", "data", "meta"]);
      expectKeys(body.meta, ["total"]);
      expect(Number.isSafeInteger(body.meta.total) && body.meta.total >= 0).toBe(true);
      expect(body.meta.total).toBeGreaterThanOrEqual(body.data.length);
      for (const datum of body.data) expectDatum(datum, words);
    } else {
      expectKeys(body, ["status", "data"]);
      expectDatum(body.data, words);
    }
  } else if (status === 422) {
    expectKeys(body, ["status", "errors"]);
    expect(Array.isArray(body.errors) && body.errors.length > 0, answer.text).toBe(true);
    for (const error of body.errors) {
      expectKeys(error, ["code", "message", "path"]);
      expectCode(error.code, error.message, /^422\d{4}$/);
      expect(Array.isArray(error.path)).toBe(true);
      for (const step of error.path)
        expect(typeof step === "string" || Number.isSafeInteger(step), answer.text).toBe(true);
    }
  } else if (body.code === 400001) {
    expectKeys(body, ["status", "code", "message", "method", "path"]);
    expect(status).toBe(404);
    expect(body.message).toBe("INVALID_PATH");
    expect(body.method).toBe(answer.method);
    expect(body.path).toBeTypeOf("string");
  } else {
    // Only the response to an internal error may have one more field: the request id, which is also in the log.
    if (body.message !== "INTERNAL_ERROR") expectKeys(body, ["status", "code", "message"]);
    expectCode(body.code, body.message, new RegExp(`^${status}\\d{3}$`));
  }
};

/** Like `exchange`, but checks the shape of the answer. */
export const send = async (origin: string, request: PlainRequest): Promise<Answer> => {
  const answer = await exchange(origin, request);
  expectShape(answer, request.path);
  return answer;
};

export interface Call {
  /** By default GET, or POST if there is a body. */
  readonly method?: string;
  /** By default the server's `key`; null sends no key. */
  readonly key?: string | null | undefined;
  readonly headers?: RequestHeaders;
  /** Sent as JSON, with the content type for JSON. */
  readonly json?: unknown;
  /** Sent unchanged, without a content type unless `headers` has one. */
  readonly body?: string | Uint8Array;
}

const toRequest = (target: Target, path: string, call: Call): PlainRequest => {
  const body = "json" in call ? JSON.stringify(call.json) : call.body;
  const key = call.key === undefined ? target.key : call.key;
  return {
    method: call.method ?? (body === undefined ? "GET" : "POST"),
    path,
    headers: {
      ...(key === null ? {} : { "x-api-key": key }),
      ...("json" in call ? { "content-type": "application/json; charset=utf-8" } : {}),
      ...call.headers,
    },
    ...(body === undefined ? {} : { body }),
  };
};

/** Calls the general interface; `path` follows its base address. */
export const api = (target: Target, path: string, call: Call = {}): Promise<Answer> =>
  send(target.baseUrl, toRequest(target, `${basePath(target)}${path}`, call));

/** Calls the answers interface; `path` follows its base address. */
export const askApi = (target: Target, call: Call = {}, path = "/"): Promise<Answer> =>
  send(target.askUrl, toRequest(target, `${askPath(target)}${path}`, call));

/** Sends an ask whose response may be a stream, without checking the response. */
export const askStream = (target: Target, call: Call, path = "/"): Promise<Answer> =>
  exchange(
    target.askUrl,
    toRequest(target, `${askPath(target)}${path}`, {
      ...call,
      headers: { accept: "text/event-stream", ...call.headers },
    }),
  );

export interface StreamEvent {
  readonly id: string;
  readonly event: string;
  readonly data: any;
}

/** The events in the text of an event stream, without comments. */
export const parseEvents = (text: string): ReadonlyArray<StreamEvent> =>
  text
    .split("\n\n")
    .slice(0, -1)
    .map((block) => {
      const lines = block.split("\n");
      const field = (name: string) =>
        lines
          .filter((line) => line.startsWith(`${name}:`))
          .map((line) => line.slice(name.length + 1).replace(/^ /, ""))
          .join("\n");
      return { id: field("id"), event: field("event"), data: field("data") };
    })
    .filter(({ data }) => data !== "")
    .map((event) => ({ ...event, data: JSON.parse(event.data) }));

/** The joined text of the `delta` events. */
export const deltaText = (events: ReadonlyArray<StreamEvent>): string =>
  events
    .filter(({ event }) => event === "delta")
    .map(({ data }) => data.text)
    .join("");

/** Calls any path on the main listener, without a key unless `call` has one. */
export const anywhere = (target: Target, path: string, call: Call = {}): Promise<Answer> =>
  send(target.origin, toRequest(target, path, { key: null, ...call }));

/** The row that a POST creates. */
const createdRow = async <A>(response: Promise<Answer>): Promise<A> => {
  const answer = await response;
  expect(answer.status, answer.text).toBe(201);
  return answer.body.data;
};

type Fields = Readonly<Record<string, unknown>>;

export const createChat = (target: Target, fields: Fields = {}, key?: string) =>
  createdRow<Chat>(api(target, "/chats", { json: fields, key }));

export const askQuestion = (target: Target, fields: Fields, key?: string) =>
  createdRow<Entry>(askApi(target, { json: fields, key }));

/** Posts an entry with the key that may. */
export const postEntry = (target: Target, chat: number, fields: Fields) =>
  createdRow<Entry>(api(target, `/chats/${chat}/history`, { json: fields, key: target.fullKey }));

const page = async <A>(target: Target, path: string, key?: string): Promise<Page<A>> => {
  const answer = await api(target, path, { key });
  expect(answer.status, answer.text).toBe(200);
  expect(Array.isArray(answer.body.data)).toBe(true);
  return { data: answer.body.data, total: answer.body.meta.total };
};

/** `query` is the query string as sent, without the question mark. */
export const listChats = (target: Target, query: string, key?: string): Promise<Page<Chat>> =>
  page<Chat>(target, `/chats?${query}`, key);

export const listEntries = (
  target: Target,
  chat: number,
  query = "",
  key?: string,
): Promise<Page<Entry>> => page<Entry>(target, `/chats/${chat}/history?${query}`, key);

/** A string that no other test, run or server has used. */
export const unique = (): string => crypto.randomUUID().replaceAll("-", "");

/** Checks that the answer is a 422 with errors for exactly these fields, each named by the first step of a path. */
export const expectInvalid = (answer: Answer, ...fields: ReadonlyArray<string>): void => {
  expect(answer.status, answer.text).toBe(422);
  const errorFields = answer.body.errors.map((error: { path: Array<unknown> }) => error.path[0]);
  expect([...new Set(errorFields)].toSorted()).toEqual([...fields].toSorted());
};

/** Checks that the answer is a failure with this status, in the general shape. */
export const expectGeneral = (answer: Answer, status: 400 | 401 | 403 | 404 | 500): void => {
  expect(answer.status, answer.text).toBe(status);
  expectKeys(answer.body, ["status", "code", "message"]);
};

const expectMissing =
  (code: number, message: string) =>
  (answer: Answer): void =>
    expect(answer.body, answer.text).toEqual({ status: 404, code, message });
export const expectNoChat = expectMissing(404011, "CHAT_DOES_NOT_EXISTS");
export const expectNoEntry = expectMissing(404012, "ENTRY_DOES_NOT_EXIST");

export const expectNoEndpoint = (answer: Answer, method: string, path: string): void =>
  expect(answer.body, answer.text).toEqual({
    status: 404,
    code: 400001,
    message: "INVALID_PATH",
    method,
    path,
  });
