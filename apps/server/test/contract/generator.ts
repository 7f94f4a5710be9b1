/**
 * Random requests, the same for the same seed: well-formed ones, and every way of spoiling them that
 * a client could think of.
 */
import type { PlainRequest, RequestHeaders } from "./client.ts";
import { clean, hostileJson, hostileStrings, notIntegers } from "./values.ts";

/**
 * A request that does not know the server it goes to: `<chat N>`, `<entry N>` and `<key NAME>` in its
 * path, headers and body stand for what that server has.
 */
export type RandomRequest = PlainRequest;

export interface Random {
  /** An integer from 0 up to and without `end`. */
  readonly below: (end: number) => number;
  /** True once in `times`, on average. */
  readonly oneIn: (times: number) => boolean;
  readonly pick: <A>(values: ReadonlyArray<A>) => A;
}

/** Numbers of a 32-bit seed (Marsaglia's xorshift). */
export const makeRandom = (seed: number): Random => {
  let state = (seed ^ 0x9e3779b9) >>> 0 || 1;
  const next = () => {
    state ^= state << 13;
    state >>>= 0;
    state ^= state >>> 17;
    state ^= state << 5;
    state >>>= 0;
    return state;
  };
  for (let n = 0; n < 8; n++) next();
  const below = (end: number) => next() % end;
  return {
    below,
    oneIn: (times) => below(times) === 0,
    pick: (values) => values[below(values.length)]!,
  };
};

const words = ["alpha", "Alpha", "ALPHA", "port", "Port?", "key", "ß", "ẞ", "İ", "ı", "ﬁ", "ΟΔΟΣ"];
const signs = [
  "%",
  "_",
  "\\",
  "'",
  '"',
  "*",
  " ",
  "\t",
  "e\u0301",
  "é",
  "😀",
  "\ufffd",
  "\ufeff",
  "\u200d",
  "0",
];

const codePoint = (random: Random): string => {
  const point = random.pick([
    () => random.below(0x80),
    () => random.below(0x800),
    () => random.below(0xd800),
    () => 0xe000 + random.below(0x2000),
    () => 0x10000 + random.below(0x100000),
    () => 0xd800 + random.below(0x800),
  ])();
  return String.fromCodePoint(point);
};

/** A string that often meets others, and is at times invalid; `most` is the length it may have. */
const text = (random: Random, most: number): string => {
  const many = (end: number, make: () => string) =>
    Array.from({ length: random.below(end) }, make).join("");
  switch (random.below(12)) {
    case 0:
      return random.pick(hostileStrings)[1];
    case 1:
      return random.pick(clean)[1];
    case 2:
      return many(8, () => codePoint(random));
    case 3:
      return random.pick(["a", "é", "語", "😀", " ", "\ufdfa"]).repeat(most - 1 + random.below(3));
    case 4:
    case 5:
    case 6:
      // Often the same, so that the other fields and the ids decide about the order.
      return random.pick(["alpha", "b", "😀", "\ufffd", ""]);
    default:
      return many(5, () => random.pick(random.oneIn(2) ? words : signs));
  }
};

/** Percent-encoded, at times in a way that does not decode. */
const encode = (random: Random, value: string): string => {
  if (random.oneIn(40))
    return random.pick(["%", "%zz", "%ff", "%ED%A0%80", "%C0%80", "é", "%u0041"]);
  const encoded = encodeURIComponent(value.toWellFormed());
  return random.oneIn(4) ? encoded.replaceAll("%20", "+") : encoded;
};

const integer = (random: Random, usual: ReadonlyArray<string>): string =>
  random.oneIn(8) ? random.pick(notIntegers)[1] : random.pick(usual);

const chatFields = ["id", "name", "userRef", "_createTime"];
const entryFields = ["id", "chat_id", "question", "answer", "moderation", "flagged", "_createTime"];

/** An array parameter in one of its spellings, at times in a mixture of them. */
const array = (random: Random, name: string, values: ReadonlyArray<string>): Array<string> => {
  const spelling = random.below(3);
  // Spelled out of order, something could come behind a time.
  const orderly = values.includes("_createTime");
  return values.map((value, n) => {
    const mixed = !orderly && random.oneIn(40) ? random.below(3) : spelling;
    const index = !orderly && random.oneIn(30) ? random.below(4) : n;
    const suffix = ["", "[]", `[${index}]`][mixed]!;
    const spelled = random.oneIn(3) ? encodeURIComponent(suffix) : suffix;
    return `${name}${spelled}=${value}`;
  });
};

const order = (random: Random, fields: ReadonlyArray<string>): Array<string> => {
  const chosen: Array<string> = [];
  const left = [...fields];
  for (let n = 1 + random.below(3); n > 0; n--) {
    if (random.oneIn(40)) chosen.push(random.pick(["", "nope", "ID", "__proto__", "id", "name"]));
    chosen.push(...left.splice(random.below(left.length), 1));
    // Whether two times are equal depends on the clock: nothing may come behind a time.
    if (chosen.includes("_createTime")) break;
  }
  const parts = random.oneIn(6) ? [] : array(random, "orderBy", chosen);
  if (random.oneIn(2)) {
    const length = random.oneIn(12) ? random.below(4) : Math.max(parts.length, 1);
    const directions = Array.from({ length }, () =>
      random.oneIn(30) ? random.pick(["TRUE", "1", "", "desc"]) : random.pick(["true", "false"]),
    );
    parts.push(...array(random, "desc", directions));
  }
  return parts;
};

/** The query of a list; `id` stands for what its filter may name. */
const listQuery = (
  random: Random,
  fields: ReadonlyArray<string>,
  id: () => string,
  filters: boolean,
): string => {
  const parts: Array<string> = [];
  if (random.oneIn(2))
    parts.push(`limit=${integer(random, ["1", "2", "7", "25", "100", "100", "100", "101", "0"])}`);
  if (random.oneIn(3))
    parts.push(`page=${integer(random, ["1", "1", "2", "3", "10", "9007199254740991", "0"])}`);
  if (random.oneIn(6)) parts.push(`id=${integer(random, [id(), id(), "9007199254740991"])}`);
  if (filters && random.oneIn(3)) parts.push(`search=${encode(random, text(random, 255))}`);
  if (filters && random.oneIn(2)) parts.push(`userRef=${encode(random, random.pick(users))}`);
  if (random.oneIn(2)) parts.push(...order(random, fields));
  if (random.oneIn(15))
    parts.push(random.pick(["x=1", "&&", "=", "Limit=0", "__proto__[x]=1", "id[]=x"]));
  if (random.oneIn(15) && parts.length > 0) parts.push(random.pick(parts));
  return parts.length === 0 ? "" : `?${parts.join("&")}`;
};

const users = ["u1", "u2", "U1", "ü", "u\u0308", "", "😀", "null"];

const field = (random: Random, usual: () => unknown): unknown => {
  if (random.oneIn(25)) return JSON.parse(random.pick(hostileJson)[1]);
  return random.oneIn(12) ? null : usual();
};

/** One character removed, doubled or put in, or the rest cut off. */
const spoil = (random: Random, value: string): string => {
  const at = random.below(value.length + 1);
  const [before, after] = [value.slice(0, at), value.slice(at)];
  return random.pick([
    before,
    before + after.slice(1),
    before + after.slice(0, 1) + after,
    before + random.pick(['"', "\\", "{", "]", ",", "\u0000", "x", "\ufeff", "\n"]) + after,
  ]);
};

const jsonBody = (random: Random, fields: Record<string, unknown>): string | Uint8Array => {
  // Without a reference: spoilt, it could name one chat on one server and none on another.
  const { chat_id, ...plain } = fields;
  switch (random.below(24)) {
    case 0:
      return spoil(random, JSON.stringify(plain));
    case 1:
      return random.pick(["", "null", "[]", "1", '"x"', "{}{}", "[[[[", "{".repeat(3000)]);
    case 2:
      return Buffer.concat([
        Buffer.from(JSON.stringify(plain).slice(0, -1)),
        Buffer.from([0x80 + random.below(0x80)]),
        Buffer.from("}"),
      ]);
    case 3:
      return JSON.stringify(plain) + " ".repeat(65_500 + random.below(100));
    case 4:
      return JSON.stringify({
        ...plain,
        [random.pick(["x", "id", "", "__proto__"])]: [1, { x: null }],
      });
    default: {
      const body = JSON.stringify(plain);
      if (chat_id === undefined) return body;
      const comma = body === "{}" ? "" : ",";
      return `{"chat_id":${chat_id as string}${comma}${body.slice(1)}`;
    }
  }
};

const postHeaders = (random: Random): RequestHeaders => ({
  ...(random.oneIn(25)
    ? random.pick([{}, { "content-type": "text/plain" }, { "content-type": "multipart/form-data" }])
    : { "content-type": random.pick(["application/json", "application/json; charset=utf-8"]) }),
  ...(random.oneIn(5)
    ? {
        "idempotency-key": random.oneIn(10)
          ? random.pick(["", "é", "k".repeat(256)])
          : `k${random.below(40)}`,
      }
    : {}),
});

/** Printable Latin-1 without a space: what a client can put into a request target. */
const targetCharacter = (random: Random): string =>
  random.oneIn(6)
    ? String.fromCharCode(0xa1 + random.below(0x5e))
    : String.fromCharCode(0x21 + random.below(0x5e));

const strayPath = (random: Random): string => {
  const path = random.pick([
    "/",
    "/api",
    "/api/details",
    "/api/chats",
    "/api/chats/x/history",
    "/ask",
    "/ask/",
    "/nope",
  ]);
  const at = 1 + random.below(path.length);
  const stray = random.pick([
    "/",
    "//",
    "%2F",
    "..",
    "%00",
    "%",
    "x",
    "A",
    ";",
    "#",
    targetCharacter(random),
  ]);
  return path.slice(0, at) + stray + path.slice(random.oneIn(2) ? at : at + 1);
};

const extraHeaders = (random: Random): RequestHeaders => {
  if (!random.oneIn(8)) return {};
  return random.pick<RequestHeaders>([
    { accept: "application/xml" },
    { accept: "text/event-stream" },
    { accept: "text/event-stream" },
    { accept: ["a/b", "c/d;q=nonsense"] },
    { origin: "https://example.test" },
    { "accept-encoding": "gzip, br" },
    { "if-none-match": "*", "if-modified-since": "Sat, 01 Jan 2100 00:00:00 GMT" },
    { range: "bytes=0-3" },
    { "on-disconnect": random.pick(["cancel", "Finish", "nonsense"]) },
    { "x-http-method-override": "DELETE" },
    { "x-forwarded-host": "evil.test", "x-original-url": "/nope" },
    { cookie: "a=b; ".repeat(200) },
    { [`x-${"h".repeat(1 + random.below(60))}`]: "v".repeat(random.below(2000)) },
    { "content-encoding": "identity" },
    { "transfer-encoding": "chunked" },
  ]);
};

const operation = (random: Random): RandomRequest => {
  const recent = () => random.below(random.pick([3, 3, 10, 200]));
  const chat = () => `<chat ${recent()}>`;
  const entry = () => `<entry ${recent()}>`;
  const absent = () =>
    random.pick(["9007199254740991", "0", "-1", "x", "1.5", "%00", "9".repeat(40), "%zz"]);
  switch (random.below(20)) {
    case 0:
      return { method: "GET", path: "/api/details", headers: {} };
    case 1:
      return { method: "GET", path: strayPath(random), headers: {} };
    case 2:
    case 3:
    case 4:
    case 5:
    case 6: {
      const fields: Record<string, unknown> = {};
      if (!random.oneIn(4)) fields["name"] = field(random, () => text(random, 255));
      if (!random.oneIn(3))
        fields["userRef"] = field(random, () =>
          random.oneIn(4) ? text(random, 60) : random.pick(users),
        );
      const body = jsonBody(random, fields);
      return { method: "POST", path: "/api/chats", headers: postHeaders(random), body };
    }
    case 7:
    case 8:
    case 9:
    case 10: {
      const fields: Record<string, unknown> = {};
      if (!random.oneIn(20)) fields["query"] = field(random, () => text(random, 200));
      if (!random.oneIn(4))
        fields["chat_id"] = random.oneIn(10)
          ? random.pick(["9007199254740991", '"x"', "1.5", "null", "true", "1e999"])
          : chat();
      const body = jsonBody(random, fields);
      const path = random.pick(["/ask/", "/ask/", "/ask", "/ask/?x=1"]);
      return { method: "POST", path, headers: postHeaders(random), body };
    }
    case 11:
    case 12:
    case 13:
    case 14: {
      const query = listQuery(random, entryFields, entry, random.oneIn(20));
      const id = random.oneIn(10) ? absent() : chat();
      return { method: "GET", path: `/api/chats/${id}/history${query}`, headers: {} };
    }
    default: {
      const query = listQuery(random, chatFields, chat, true);
      return { method: "GET", path: `/api/chats${query}`, headers: {} };
    }
  }
};

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD", "TRACE", "FOO"];

export const randomRequest = (random: Random): RandomRequest => {
  const request = operation(random);
  const key = random.oneIn(12)
    ? random.pick([
        {},
        { "x-api-key": "" },
        { "x-api-key": "prl_é" },
        { "x-api-key": "<key readKey>" },
        { "x-api-key": "<key askKey>" },
        { "x-api-key": "<key expiredKey>" },
        { "x-api-key": "<key unknownKey>" },
      ])
    : {
        "x-api-key": random.oneIn(6)
          ? random.pick(["<key otherKey>", "<key noHelloKey>"])
          : "<key key>",
      };
  return {
    ...request,
    method: random.oneIn(30) ? random.pick(methods) : request.method,
    headers: { ...request.headers, ...extraHeaders(random), ...key },
  };
};
