/**
 * What is measured: the requests, the numbers of connections, the servers, and Parley's goals.
 */
import { randomUUID } from "node:crypto";
import { documentsQuestion, instantQuestion, pacedQuestion } from "../servers/answers.ts";
import { call, type Request } from "./Http.ts";
import type { Expected, Load } from "./Load.ts";
import type { Answers, Server, ServerName } from "./Servers.ts";

export interface Scenario {
  readonly name: string;
  /** "at once" by default. */
  readonly answers?: Answers;
  readonly connections: ReadonlyArray<number>;
  readonly servers: ReadonlyArray<ServerName>;
  /** The connections take turns to send these requests. */
  readonly requests: (server: Server) => ReadonlyArray<Request>;
  /** "all but digits" by default. */
  readonly match?: Expected["match"];
  readonly staggerMillis?: number;
}

const parleys = ["against", "file", "parley"] as const;
const databaseServers = ["fastify", "care", ...parleys] as const;

/** The number of chats that receive asks. Each soon has 20 entries, as many as an ask reads. */
const askedChats = 1024;

const ask = (chat_id: number, query: string, headers: Request["headers"] = {}): Request => ({
  method: "POST",
  path: "/ask/",
  headers,
  body: { chat_id, query },
});
const asks = (query: string, headers?: Request["headers"]) => ({
  requests: ({ chats }: Server) =>
    chats.slice(0, askedChats).map((chat) => ask(chat, query, headers)),
});

/** For answers that arrive piece by piece. */
const staggerMillis = 100;

const keyHeaders = { "idempotency-key": "{key}" };
const streamHeaders = { accept: "text/event-stream" };

// Scenarios that add rows come last.
export const scenarios: ReadonlyArray<Scenario> = [
  {
    name: "details",
    connections: [32, 128],
    servers: ["floor", "fastify", "care", ...parleys],
    requests: () => [{ method: "GET", path: "/api/details" }],
    match: "bytes",
  },
  {
    name: "list",
    connections: [32, 128],
    servers: databaseServers,
    requests: () => [{ method: "GET", path: "/api/chats" }],
    match: "bytes",
  },
  {
    name: "history",
    connections: [32, 128],
    servers: databaseServers,
    requests: ({ longChat }) => [{ method: "GET", path: `/api/chats/${longChat}/history` }],
    match: "bytes",
  },
  {
    name: "create",
    connections: [32, 128],
    servers: databaseServers,
    requests: () => [
      { method: "POST", path: "/api/chats", body: { name: "Chat", userRef: "u-1" } },
    ],
  },
  {
    name: "ask",
    connections: [1, 8, 32, 128],
    servers: ["floor", "fastify", "care", ...parleys],
    ...asks(instantQuestion),
  },
  {
    name: "ask with Idempotency-Key",
    connections: [1, 8, 32, 128],
    servers: databaseServers,
    ...asks(instantQuestion, keyHeaders),
  },
  {
    name: "ask, all in one chat",
    connections: [64],
    servers: databaseServers,
    requests: ({ chats }) => [ask(chats.at(-1)!, instantQuestion)],
  },
  {
    name: "ask, streamed in 200 pieces",
    connections: [32],
    servers: ["floor", "fastify", ...parleys],
    ...asks(pacedQuestion, streamHeaders),
    match: "last event",
    staggerMillis,
  },
  {
    name: "ask, from documents",
    answers: "from documents",
    connections: [1, 32],
    servers: parleys,
    ...asks(documentsQuestion),
  },
  {
    name: "ask a model",
    answers: "by a model",
    connections: [16],
    servers: ["fastify", "mastra", ...parleys],
    ...asks(instantQuestion),
    staggerMillis,
  },
  {
    name: "ask a model, streamed",
    answers: "by a model",
    connections: [16],
    servers: ["fastify", "mastra", ...parleys],
    ...asks(instantQuestion, streamHeaders),
    match: "last event",
    staggerMillis,
  },
];

const toText = ({ body, headers, method, path }: Request, key: string): string => {
  const text = body === undefined ? "" : JSON.stringify(body);
  const lines = Object.entries({
    host: "127.0.0.1",
    "x-api-key": key,
    ...(body !== undefined && {
      "content-type": "application/json; charset=utf-8",
      "content-length": Buffer.byteLength(text),
    }),
    ...headers,
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${text}`;
};

/** A scenario's requests for a server, and the expected response, which is obtained by sending the first request. */
export const loadOf = async (
  { match = "all but digits", requests, staggerMillis = 0 }: Scenario,
  server: Server,
): Promise<Pick<Load, "expected" | "port" | "requests" | "staggerMillis">> => {
  const all = requests(server);
  const [first] = all;
  const headers = Object.entries(first!.headers ?? {});
  const { status, text } = await call(server, {
    ...first!,
    headers: Object.fromEntries(
      headers.map(([name, value]) => [name, value.replace("{key}", randomUUID())]),
    ),
  });
  return {
    port: server.port,
    requests: all.map((request) => toText(request, server.key)),
    expected: { status, body: text, match },
    staggerMillis,
  };
};

/**
 * Throws unless all servers' responses are the same, apart from ids and times. The floor, which stores nothing, and the
 * AI SDK's streams, which have events of their own, are not compared.
 */
export const assertSame = (scenario: Scenario, responses: ReadonlyMap<Server, Expected>): void => {
  const texts = [...responses].flatMap(([{ name }, { body, status }]) => {
    if (status !== 200 && status !== 201)
      throw new Error(`${scenario.name}: ${name} responded with ${status}: ${body}`);
    if (name === "floor") return [];
    const json = scenario.match === "last event" ? body.split("\ndata: ").at(-1)! : body;
    return json.startsWith("{") ? [`${name}: ${plain(json)}`] : [];
  });
  const contents = texts.map((text) => text.slice(text.indexOf(":")));
  if (new Set(contents).size > 1) {
    throw new Error(`The servers differ in ${scenario.name}:\n${texts.join("\n")}`);
  }
};

/** A JSON text with its keys sorted, and its valid ids and times replaced with "an id" and "a time". */
const plain = (text: string): string =>
  JSON.stringify(
    JSON.parse(text, (key, value) => {
      if (key === "id" || key === "chat_id") return Number.isSafeInteger(value) ? "an id" : value;
      if (key === "_createTime")
        return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(value) ? "a time" : value;
      const isObject = typeof value === "object" && value !== null && !Array.isArray(value);
      return isObject ? Object.entries(value).toSorted(([a], [b]) => (a < b ? -1 : 1)) : value;
    }),
  );
