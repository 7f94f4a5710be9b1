/**
 * The measured requests, one each, and the ratio that Parley has to reach.
 */
import { call } from "./Http.ts";
import type { Load } from "./Load.ts";
import type { Running } from "./Servers.ts";

export interface Scenario {
  readonly name: string;
  readonly method: "GET" | "POST";
  readonly path: (server: Running) => string;
  readonly body?: object;
  readonly match: Load["expected"]["match"];
}

export interface Compared extends Scenario {
  readonly name: "details" | "history" | "create";
  /** The least ratio of Parley's requests a second to the peer's. */
  readonly target: number;
}

// `create` comes last: it leaves work behind for PostgreSQL.
export const scenarios: ReadonlyArray<Compared> = [
  {
    name: "details",
    method: "GET",
    path: () => "/api/details",
    match: "bytes",
    target: 1,
  },
  {
    name: "history",
    method: "GET",
    path: ({ longChat }) => `/api/chats/${longChat}/history`,
    match: "bytes",
    target: 1.2,
  },
  {
    name: "create",
    method: "POST",
    path: () => "/api/chats",
    body: { name: "Chat", userRef: "u-1" },
    match: "all but digits",
    target: 1.4,
  },
];

/** A request to a server and its expected response, which one request finds out. */
export const loadOf = async (
  { body, match, method, path }: Scenario,
  server: Running,
): Promise<Pick<Load, "expected" | "port" | "request">> => {
  const answer = await call(server.port, method, path(server), server.key, body);
  const text = body === undefined ? "" : JSON.stringify(body);
  const headers = [
    "host: 127.0.0.1",
    `x-api-key: ${server.key}`,
    ...(body === undefined
      ? []
      : [
          "content-type: application/json; charset=utf-8",
          `content-length: ${Buffer.byteLength(text)}`,
        ]),
  ];
  return {
    port: server.port,
    request: `${method} ${path(server)} HTTP/1.1\r\n${headers.join("\r\n")}\r\n\r\n${text}`,
    expected: { status: answer.status, body: answer.text, match },
  };
};

/** Throws unless two servers' answers say the same, other ids and times aside. */
export const assertSame = (scenario: string, one: Load["expected"], other: Load["expected"]) => {
  const said = ({ body, status }: Load["expected"]) =>
    JSON.stringify([status, plain(JSON.parse(body))]);
  if (said(one) !== said(other) || (one.status !== 200 && one.status !== 201)) {
    throw new Error(`The servers differ in ${scenario}:\n${said(one)}\n${said(other)}`);
  }
};

/** A value with its keys in order and its ids and times replaced by what they are. */
const plain = (value: unknown, key = ""): unknown => {
  if (key === "id" || key === "chat_id") return Number.isSafeInteger(value) ? "an id" : value;
  if (key === "_createTime") {
    return /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/.test(String(value)) ? "a time" : value;
  }
  if (Array.isArray(value)) return value.map((item) => plain(item));
  if (typeof value !== "object" || value === null) return value;
  return Object.entries(value)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, inner]) => [name, plain(inner, name)]);
};
