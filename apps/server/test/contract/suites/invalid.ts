import { expect, it } from "vitest";
import { api, askApi, expectInvalid, type Answer, type Server } from "../client.ts";

/** A query or a body, and the names of the values that the 422 must list. A string is sent as it is, otherwise as JSON. */
type Row = readonly [sent: unknown, names: string, headers?: Readonly<Record<string, string>>];

/** Values that are no storable text of at most so many code points. */
const notStorable = ["a\0b", "a\ud83d", "\ude00\ud83d"];
const notTexts = (most: number): ReadonlyArray<unknown> => {
  const tooLong = ["x", "😀"].map((character) => character.repeat(most + 1));
  return [1, true, ["x"], { toString: "x", length: 1 }, ...notStorable, ...tooLong];
};
const texts = (name: string, most: number): ReadonlyArray<Row> =>
  notTexts(most).map((value) => [{ [name]: value }, name]);

/** Values that no `Idempotency-Key` may have, together with another invalid value. */
const keys = (sent: object, names: string): ReadonlyArray<Row> =>
  ["", "k".repeat(256), "clé"].map((key) => [
    sent,
    `Idempotency-Key ${names}`,
    { "idempotency-key": key },
  ]);

/** Percent-encoded values that are not plain decimal integers up to 2^53 - 1. */
const notIntegers = ["", "1e2", "%2B1", "%201", "1.5", "-1", "%EF%BC%91", "9007199254740992"];

/** What both lists reject. */
const lists = (field: string, numbers: ReadonlyArray<string>): ReadonlyArray<Row> => [
  ...numbers.flatMap((name) => notIntegers.map((text): Row => [`${name}=${text}`, name])),
  ...numbers.map((name): Row => [`${name}=1&${name}=1`, name]),
  ["limit=101", "limit"],
  ["limit=0&page=0", "limit page"],
  [`orderBy=${field}`, "orderBy"],
  ["orderBy=id&orderBy=id", "orderBy"],
  ["desc=1", "desc"],
  ["desc=true&desc=false", "desc"],
  [`orderBy=id&orderBy=_createTime&desc=true`, "desc"],
  [`limit=x&page=y&id=z&orderBy=nope&desc=no&include=nope`, "limit page id orderBy desc include"],
];

/** What every `include` rejects that has this word, but not the other. */
const includes = (word: string, other: string): ReadonlyArray<string> =>
  [other, "", `${word},`, `${word},nope`, `${word}%20`, word.toUpperCase()].concat(
    `${word}&include=${word}`,
  );
const queries = (values: ReadonlyArray<string>): ReadonlyArray<Row> =>
  values.map((value) => [`include=${value}`, "include"]);

/** Invalid values: every endpoint answers 422, and names each of them. */
export const invalid = (server: Server): void => {
  const json = { "content-type": "application/json" };
  const list = (path: string) => (query: unknown) =>
    api(server(), `${path}?${query as string}`, { key: server().fullKey });
  const body =
    (method: string, path: string) =>
    (sent: unknown, headers = {}, query = ""): Promise<Answer> => {
      const text = typeof sent === "string" ? sent : JSON.stringify(sent);
      const call = { method, body: text, headers: { ...json, ...headers } };
      if (path === "/ask") return askApi(server(), call, `/${query}`);
      return api(server(), `${path}${query}`, { ...call, key: server().fullKey });
    };
  const ask = body("POST", "/ask");
  const rename = body("PATCH", "/chats/0");
  const rate = body("PATCH", "/chats/0/history/0");
  const post = body("POST", "/chats/0/history");

  const table: ReadonlyArray<
    readonly [
      what: string,
      send: (sent: unknown, headers?: object, query?: string) => Promise<Answer>,
      rows: ReadonlyArray<Row>,
    ]
  > = [
    [
      "a list of chats",
      list("/chats"),
      [
        ...lists("lastEntryTime", ["limit", "page", "id"]),
        ["orderBy=entries", "orderBy"],
        ["search=a%00b&userRef=%ff", "search userRef"],
        ["userRef=a&userRef=a", "userRef"],
        ...queries(includes("activity", "metadata")),
      ],
    ],
    [
      "a history",
      list("/chats/9007199254740991/history"),
      [
        ...lists("name", ["limit", "page", "id", "after"]),
        ...["_lastEntryTime", "rating", "metadata"].map((field): Row => [
          `orderBy=${field}`,
          "orderBy",
        ]),
        ...queries(includes("metadata", "activity")),
      ],
    ],
    [
      "a creation",
      body("POST", "/chats"),
      [
        ...texts("name", 255),
        ...texts("userRef", 60),
        [{ name: "\0", userRef: "x".repeat(61) }, "name userRef"],
        ...keys({ name: 1 }, "name"),
      ],
    ],
    [
      "an ask",
      ask,
      [
        ...texts("query", 200),
        ...["", " \u0085", null].map((query): Row => [{ query }, "query"]),
        ...['"1"', "1.5", "1e999", "true", "[1]", "{}"].map((id): Row => [
          `{"chat_id":${id},"query":"port"}`,
          "chat_id",
        ]),
        // The values are checked before the chat is looked up.
        [{ chat_id: 9007199254740991 }, "query"],
        ...keys({ chat_id: "x" }, "chat_id query"),
        ...["", "nonsense"].map((value): Row => [
          { chat_id: "1" },
          "On-Disconnect chat_id query",
          { "on-disconnect": value },
        ]),
      ],
    ],
    [
      "an ask's query",
      (query) => ask({}, {}, `?${query as string}`),
      includes("feedback", "activity").map((value) => [`include=${value}`, "include query"]),
    ],
    ["a renaming", rename, texts("name", 255)],
    [
      "a renaming's query",
      (query) => rename({ name: 1 }, {}, `?${query as string}`),
      includes("activity", "metadata").map((value) => [`include=${value}`, "include name"]),
    ],
    [
      "a rating",
      rate,
      [
        ...["Good", "", 1].map((rating): Row => [{ rating }, "rating"]),
        ...texts("comment", 1000),
        [{ rating: "", comment: [] }, "comment rating"],
      ],
    ],
    ["a rating's query", (query) => rate({}, {}, `?${query as string}`), queries(["activity"])],
    [
      "a post",
      post,
      [
        ...texts("text", 10_000),
        ...[undefined, null, "", " \u0085"].map((text): Row => [{ text }, "text"]),
        ...["x", 1, true, []].map((metadata): Row => [{ text: "t", metadata }, "metadata"]),
        ...notStorable.flatMap((text) =>
          [{ a: [{ b: text }] }, { a: { [text]: 1 } }].map((metadata): Row => [
            { text: "t", metadata },
            "metadata",
          ]),
        ),
        [{ text: "t", metadata: { a: "é".repeat(8_189) } }, "metadata"],
        ...[1, null, "é".repeat(61)].map((author): Row => [
          { text: "t", metadata: { author } },
          "metadata",
        ]),
        ...[100, 2_000, 20_000].map((levels): Row => [
          `{"text":"t","metadata":{"a":${"[".repeat(levels)}${"]".repeat(levels)}}}`,
          "metadata",
        ]),
        ...keys({ metadata: 1 }, "metadata text"),
      ],
    ],
    [
      "a post's query",
      (query) => post({}, {}, `?${query as string}`),
      [["include=x", "include text"]],
    ],
  ];

  for (const [what, send, rows] of table)
    it(`every invalid value of ${what} results in 422, with its name`, async () => {
      for (const [sent, names, headers] of rows)
        expectInvalid(await send(sent, headers), ...names.split(" "));
    });

  it("values that are invalid for different reasons have different codes", async () => {
    const codes = (sent: ReadonlyArray<unknown>, send: typeof ask) =>
      Promise.all(sent.map(async (each) => (await send(each)).body.errors[0].code as number));
    const questions = [{ query: "" }, { query: "x".repeat(201) }, { query: 1 }, { query: "\0" }];
    const answers = await codes(questions, ask);
    expect(new Set([...answers, 4222055]).size).toBe(5);
    expect(await codes([{ query: "\t\r\n" }, { query: "\u3000 \u2003" }], ask)).toEqual([
      answers[0],
      answers[0],
    ]);
    const metadata = ['"x"', '{"a":1e999}', `{"a":"${"x".repeat(16_384)}"}`];
    const posted = metadata.map((value) => `{"text":"t","metadata":${value}}`);
    expect(new Set(await codes(posted, post)).size).toBe(3);
  });

  it("a missing question has the code 4222055", async () => {
    for (const sent of ["{}", '{"query":null}'])
      expect((await ask(sent)).body).toEqual({
        status: 422,
        errors: [{ code: 4222055, message: "ASK_DTO_QUERY_NOT_PRESENT", path: ["query"] }],
      });
  });
};
