import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { expect, it } from "vitest";
import {
  api,
  basePath,
  expectGeneral,
  listChats,
  raw,
  requestText,
  unique,
  type Answer,
  type Server,
} from "../client.ts";

const host = "Host: example.test";

/** Every response, even to malformed HTTP, is JSON in one of the shapes in docs/interface.md. */
export const malformed = (server: Server): void => {
  const details = () => `GET ${basePath(server())}/details HTTP/1.1`;
  const chats = () => `POST ${basePath(server())}/chats HTTP/1.1`;
  const key = () => `x-api-key: ${server().key}`;
  const json = "Content-Type: application/json";
  const chunked = "Transfer-Encoding: chunked";
  const get = (...headers: ReadonlyArray<string>) => requestText(details(), [...headers, ""]);
  const post = (header: string, body = "{}") =>
    requestText(chats(), [host, key(), json, header], body);
  const responseTo = async (...pieces: ReadonlyArray<string | Uint8Array>): Promise<Answer> => {
    const { answers } = await raw(server().origin, pieces);
    expect(answers, "an answer before the end of the connection").toHaveLength(1);
    return answers[0]!;
  };

  for (const [what, text] of [
    ["no Host", () => get(key())],
    ["a Host with a space", () => get("Host: a b", key())],
    ["two Hosts", () => get(host, "Host: other.test", key())],
    ["chunks in HTTP/1.0", () => `POST / HTTP/1.0\r\n${host}\r\n${chunked}\r\n\r\n0\r\n\r\n`],
    ["the HTTP/2 connection preface", () => "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"],
    ["a TLS ClientHello", () => "\x16\x03\x01\0\x25\x01\0\0\x21\x03\x03\r\n\r\n"],
    ["a space in the target", () => requestText("GET /a b HTTP/1.1", [host, ""])],
    ["a header line without a colon", () => get(host, "nonsense")],
    ["a space before the colon", () => get(host, "x-api-key : k")],
    ["NUL in a header", () => get(host, "a: b\0c")],
    ["a control character in a key", () => get(host, "x-api-key: a\u0001")],
    ["headers over the limit", () => get(host, key(), `a: ${"b".repeat(70_000)}`)],
    [
      "a target over the limit",
      () => requestText(`GET /${"a".repeat(70_000)} HTTP/1.1`, [host, ""]),
    ],
    ["an expectation other than 100-continue", () => post("Expect: 200-ok\r\nContent-Length: 2")],
    ["a length that is not a number", () => post("Content-Length: x")],
    ["two lengths", () => post("Content-Length: 2\r\nContent-Length: 3")],
    ["a length and chunks", () => post(`Content-Length: 2\r\n${chunked}`, "2\r\n{}\r\n0\r\n\r\n")],
    ["a malformed second chunk", () => post(chunked, "1\r\n{\r\nq\r\n}\r\n0\r\n\r\n")],
    [
      "chunks over 64 KiB",
      () => post(chunked, `2\r\n{}\r\n10000\r\n${" ".repeat(65_536)}\r\n0\r\n\r\n`),
    ],
    ["a length over 64 KiB", () => post("Content-Length: 65537", "{")],
    ["a length over 4 GiB", () => post("Content-Length: 5000000000", "{")],
    [
      "a length over the limit, with 100-continue",
      () => post("Expect: 100-continue\r\nContent-Length: 10000000", ""),
    ],
    ["an upgrade", () => get(host, key(), "Connection: Upgrade", "Upgrade: websocket")],
  ] as const)
    it(`malformed HTTP is 400: ${what}`, async () => {
      const answer = await responseTo(text());
      // The response is 401 if the parser lets the control character through.
      if (/in a key/.test(what)) expect([400, 401]).toContain(answer.status);
      else expectGeneral(answer, 400);
    });

  it("the response to malformed HTTP has the client's x-request-id if that has been read", async () => {
    for (const lines of [[], [host, "Expect: a"], [host, "Connection: upgrade", "Upgrade: a"]]) {
      const answer = await responseTo(get(...lines, "x-request-id: mine"));
      expectGeneral(answer, 400);
      expect(answer.headers["x-request-id"]).toBe("mine");
    }
  });

  it("requests that only some HTTP parsers accept receive a response in a documented shape", async () => {
    for (const text of [
      `GET /nope\r\n${host}\r\n\r\n`,
      requestText("CONNECT example.test:443 HTTP/1.1", [host, ""]),
    ])
      await responseTo(text);
  });

  for (const [what, target, lines, rest] of [
    ["a bad chunk", () => `${basePath(server())}/details`, () => [chunked, key()], "zz\r\n"],
    ["an upgrade", () => "/", () => ["Connection: Upgrade", "Upgrade: a", ""], ""],
  ] as const)
    it(`the response to a HEAD request that is rejected for ${what} has no body`, async () => {
      const text = requestText(`HEAD ${target()} HTTP/1.1`, [host, ...lines()], rest);
      const { answers } = await raw(server().origin, [text], { methods: ["HEAD", "GET"] });
      // A body would be parsed as the response to a GET.
      expect(answers).toHaveLength(1);
      expect([400, 404]).toContain(answers[0]!.status);
    });

  it("a request answered before its body is read receives no second response", async () => {
    const { answers } = await raw(
      server().origin,
      [requestText("POST /nowhere HTTP/1.1", [host, json, chunked], "zz\r\n")],
      { methods: ["POST", "GET"] },
    );
    expect(answers).toHaveLength(1);
    expect(answers[0]!.status).toBe(404);
  });

  it("a connection with a truncated request head receives a response or is closed, and never stays open", async () => {
    const { answers } = await raw(server().origin, [`${details()}\r\n${host}\r\n`], {
      end: true,
    });
    for (const answer of answers) expectGeneral(answer, 400);
  });

  it("a request with a truncated body creates nothing", async () => {
    const userRef = unique();
    const { answers } = await raw(
      server().origin,
      [post("Content-Length: 100", `{"userRef":"${userRef}"}`)],
      { end: true },
    );
    for (const answer of answers) expectGeneral(answer, 400);
    expect((await listChats(server(), `userRef=${userRef}`)).total).toBe(0);
  });

  it("a compressed body is 400", async () => {
    const headers = { "content-type": "application/json", "content-encoding": "gzip" };
    expectGeneral(await api(server(), "/chats", { body: gzipSync("{}"), headers }), 400);
  });

  for (const [header, piece] of [
    ["Content-Length: 4000000", " ".repeat(50_000)],
    [chunked, `c350\r\n${" ".repeat(50_000)}\r\n`],
  ] as const)
    it(`a body over the limit is rejected while it is being sent: ${header}`, async () => {
      const pieces = Array.from({ length: 20 }, () => piece);
      expectGeneral(await responseTo(post(header, ""), ...pieces), 400);
    });

  it("HTTP/1.0 needs no Host", async () => {
    const line = `GET ${basePath(server())}/details HTTP/1.0`;
    expect((await responseTo(requestText(line, [key(), ""]))).status).toBe(200);
  });

  it("a request may arrive in small pieces", async () => {
    const request = post("Content-Length: 17\r\nConnection: close", '{"name":"é😀"}');
    const { hostname, port } = new URL(server().origin);
    const socket = connect({ host: hostname, port: Number(port), noDelay: true });
    const chunks = socket.setEncoding("utf8").toArray();
    for (const byte of Buffer.from(request))
      await new Promise((next) => socket.write(Buffer.from([byte]), next));
    expect((await chunks).join("")).toMatch(/^HTTP\/1\.1 201 /);
  });

  it("a request that expects 100-continue receives 100, and then its response", async () => {
    const { answers, interim } = await raw(server().origin, [
      post("Expect: 100-continue\r\nContent-Length: 2", ""),
      "{}",
    ]);
    expect(interim).toEqual([100]);
    expect(answers[0]?.status).toBe(201);
  });

  it("a chunked body is accepted, even if a character is split across chunks", async () => {
    const bytes = Buffer.from('{"name":"😀"}');
    const chunk = (part: Uint8Array) =>
      Buffer.concat([
        Buffer.from(`${part.length.toString(16)};x=y\r\n`),
        part,
        Buffer.from("\r\n"),
      ]);
    const [start, end] = [chunk(bytes.subarray(0, 11)), chunk(bytes.subarray(11))];
    const answer = await responseTo(post(chunked, ""), start, end, "0\r\nX-Trailer: 1\r\n\r\n");
    expect(answer.status, answer.text).toBe(201);
    expect(answer.body.data.name).toBe("😀");
  });

  it("the body of a GET is ignored, and the request that follows it is answered", async () => {
    const { answers } = await raw(
      server().origin,
      [requestText(details(), [host, key(), "Content-Length: 5"], "GET /"), get(host, key())],
      { methods: ["GET", "GET"] },
    );
    expect(answers.map(({ status }) => status)).toEqual([200, 200]);
  });
};
