import { connect } from "node:net";
import { gzipSync } from "node:zlib";
import { describe, expect, it } from "vitest";
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

/** "Every answer, also to malformed HTTP, is JSON in one of the spec's shapes." */
export const malformed = (server: Server): void => {
  const one = async (
    pieces: ReadonlyArray<string | Uint8Array>,
    options: { readonly method?: string; readonly end?: boolean } = {},
  ): Promise<Answer> => {
    const { answers } = await raw(server().origin, pieces, {
      methods: [options.method ?? "GET"],
      end: options.end ?? false,
    });
    expect(answers, "an answer before the end of the connection").toHaveLength(1);
    return answers[0]!;
  };
  const details = () => `GET ${basePath(server())}/details HTTP/1.1`;
  const chats = () => `POST ${basePath(server())}/chats HTTP/1.1`;
  const key = () => `x-api-key: ${server().key}`;
  const json = "Content-Type: application/json";
  const chunked = "Transfer-Encoding: chunked";

  describe("malformed HTTP is 400", () => {
    const cases: ReadonlyArray<
      readonly [string, () => ReadonlyArray<string | Uint8Array>, string?]
    > = [
      ["no Host", () => [requestText(details(), [key(), ""])]],
      ["a Host with a space", () => [requestText(details(), ["Host: a b", key(), ""])]],
      ["a Host that is a list", () => [requestText(details(), ["Host: a, b", key(), ""])]],
      [
        "chunks in HTTP/1.0",
        () => [requestText("POST / HTTP/1.0", [host, key(), chunked], "0\r\n\r\n")],
        "POST",
      ],
      ["nonsense", () => ["nonsense\r\n\r\n"]],
      ["the preface of HTTP/2", () => ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"]],
      ["a TLS greeting", () => [Buffer.from("16030100a5010000a10303", "hex"), "\r\n\r\n"]],
      ["an unknown method", () => [requestText("FOO / HTTP/1.1", [host, ""])], "FOO"],
      ["a space in the target", () => [requestText("GET /a b HTTP/1.1", [host, ""])]],
      ["a header line without a colon", () => [requestText(details(), [host, "nonsense", ""])]],
      ["a header's name with a space", () => [requestText(details(), [host, "a b: c", ""])]],
      ["a space before the colon", () => [requestText(details(), [host, "x-api-key : k", ""])]],
      ["NUL in a header", () => [requestText(details(), [host, "a: b\0c", ""])]],
      [
        "a control character in a key",
        () => [requestText(details(), [host, "x-api-key: a\u0001", ""])],
      ],
      [
        "headers over their limit",
        () => [requestText(details(), [host, key(), `a: ${"b".repeat(70_000)}`, ""])],
      ],
      [
        "a target over its limit",
        () => [requestText(`GET /${"a".repeat(70_000)} HTTP/1.1`, [host, ""])],
      ],
      [
        "an expectation other than 100-continue",
        () => [
          requestText(chats(), [host, key(), json, "Expect: 200-ok", "Content-Length: 2"], "{}"),
        ],
        "POST",
      ],
      [
        "a length that is no number",
        () => [requestText(chats(), [host, key(), json, "Content-Length: x"], "{}")],
        "POST",
      ],
      [
        "two lengths",
        () => [
          requestText(chats(), [host, key(), json, "Content-Length: 2", "Content-Length: 3"], "{}"),
        ],
        "POST",
      ],
      [
        "a length and chunks",
        () => [
          requestText(
            chats(),
            [host, key(), json, "Content-Length: 2", chunked],
            "2\r\n{}\r\n0\r\n\r\n",
          ),
        ],
        "POST",
      ],
      [
        "an unknown transfer coding",
        () => [requestText(chats(), [host, key(), json, "Transfer-Encoding: gzip"], "{}")],
        "POST",
      ],
      [
        "a chunk's size that is no number",
        () => [requestText(chats(), [host, key(), json, chunked], "zz\r\n{}\r\n0\r\n\r\n")],
        "POST",
      ],
      [
        "a broken second chunk",
        () => [requestText(chats(), [host, key(), json, chunked], "1\r\n{\r\nq\r\n}\r\n0\r\n\r\n")],
        "POST",
      ],
      [
        "chunks over 64 KiB",
        () => [
          requestText(
            chats(),
            [host, key(), json, chunked],
            `2\r\n{}\r\n10000\r\n${" ".repeat(65_536)}\r\n0\r\n\r\n`,
          ),
        ],
        "POST",
      ],
    ];
    for (const [what, pieces, method] of cases)
      it(what, async () => {
        const { answers } = await raw(server().origin, pieces(), { methods: [method ?? "GET"] });
        expect(answers).toHaveLength(1);
        const [answer] = answers as [Answer];
        // A missing or invalid key is refused first, if the request can be read that far.
        if (/in a key/.test(what)) expect([400, 401]).toContain(answer.status);
        else expectGeneral(answer, 400);
      });

    it("carries the client's own x-request-id if the server has read it", async () => {
      for (const lines of [[], [host, "Expect: a"], [host, "Connection: upgrade", "Upgrade: a"]]) {
        const answer = await one([requestText(details(), [...lines, "x-request-id: mine", ""])]);
        expectGeneral(answer, 400);
        expect(answer.headers["x-request-id"]).toBe("mine");
      }
    });

    for (const [what, text] of [
      ["two Hosts", () => requestText(details(), [host, "Host: other.test", key(), ""])],
      ["no version", () => `GET /nope\r\n${host}\r\n\r\n`],
    ] as const)
      it(`${what}: answered in a shape of the specification`, async () => {
        await one([text()]);
      });

    for (const [what, target, lines, rest] of [
      ["a chunk", () => `${basePath(server())}/details`, () => [chunked, key()], "zz\r\n"],
      ["an upgrade", () => "/", () => ["Connection: Upgrade", "Upgrade: a", ""], ""],
    ] as const)
      it(`${what} of a HEAD request: the response has no body`, async () => {
        const text = requestText(`HEAD ${target()} HTTP/1.1`, [host, ...lines()], rest);
        const { answers } = await raw(server().origin, [text], { methods: ["HEAD", "GET"] });
        // A body would be read as the response to a GET.
        expect(answers).toHaveLength(1);
        expect([400, 404]).toContain(answers[0]!.status);
      });

    it("a request that was answered before its body was read is not answered again", async () => {
      const { answers } = await raw(
        server().origin,
        [requestText("POST /nowhere HTTP/1.1", [host, json, chunked], "zz\r\n")],
        { methods: ["POST", "GET"] },
      );
      expect(answers).toHaveLength(1);
      expect(answers[0]!.status).toBe(404);
    });

    it("a head that is cut off is answered or closed, never left", async () => {
      const { answers } = await raw(server().origin, [`${details()}\r\n${host}\r\n`], {
        end: true,
      });
      for (const answer of answers) expectGeneral(answer, 400);
    });

    it("a body that is cut off makes nothing", async () => {
      const userRef = unique();
      const { answers } = await raw(
        server().origin,
        [
          requestText(
            chats(),
            [host, key(), json, "Content-Length: 100"],
            `{"userRef":"${userRef}"}`,
          ),
        ],
        { methods: ["POST"], end: true },
      );
      for (const answer of answers) expectGeneral(answer, 400);
      expect((await listChats(server(), `userRef=${userRef}`)).total).toBe(0);
    });

    it("a compressed body is 400", async () => {
      const headers = { "content-type": "application/json", "content-encoding": "gzip" };
      expectGeneral(await api(server(), "/chats", { body: gzipSync("{}"), headers }), 400);
    });

    it("CONNECT is refused in a shape of the specification", async () => {
      const answer = await one([requestText("CONNECT example.test:443 HTTP/1.1", [host, ""])], {
        method: "CONNECT",
      });
      expect([400, 404]).toContain(answer.status);
    });
  });

  describe("a body over the limit", () => {
    for (const length of [65_537, 10_000_000, 5_000_000_000])
      it(`of ${length} bytes is refused before it is sent`, async () => {
        const answer = await one(
          [requestText(chats(), [host, key(), json, `Content-Length: ${length}`], "{")],
          { method: "POST" },
        );
        expectGeneral(answer, 400);
      });

    it("is refused while it is being sent, and the connection is closed", async () => {
      const answer = await one(
        [
          requestText(chats(), [host, key(), json, "Content-Length: 4000000"], ""),
          ...Array.from({ length: 20 }, () => " ".repeat(50_000)),
        ],
        { method: "POST" },
      );
      expectGeneral(answer, 400);
    });

    it("is refused while endless chunks are being sent", async () => {
      const answer = await one(
        [
          requestText(chats(), [host, key(), json, chunked], ""),
          ...Array.from({ length: 20 }, () => `c350\r\n${" ".repeat(50_000)}\r\n`),
        ],
        { method: "POST" },
      );
      expectGeneral(answer, 400);
    });

    it("is refused although 100-continue is expected", async () => {
      const { answers } = await raw(
        server().origin,
        [
          requestText(
            chats(),
            [host, key(), json, "Expect: 100-continue", "Content-Length: 10000000"],
            "",
          ),
        ],
        { methods: ["POST"] },
      );
      expectGeneral(answers[0]!, 400);
    });
  });

  describe("unusual and well-formed HTTP", () => {
    it("HTTP/1.0 needs no Host", async () => {
      const line = `GET ${basePath(server())}/details HTTP/1.0`;
      expect((await one([requestText(line, [key(), ""])])).status).toBe(200);
    });

    it("an empty Host is accepted", async () => {
      expect((await one([requestText(details(), ["Host:", key(), ""])])).status).toBe(200);
    });

    it("a key's surrounding white space does not count", async () => {
      const header = `X-API-KEY:\t  ${server().key} \t`;
      expect((await one([requestText(details(), [host, header, ""])])).status).toBe(200);
    });

    it("an empty line before the request is skipped", async () => {
      expect((await one([`\r\n${requestText(details(), [host, key(), ""])}`])).status).toBe(200);
    });

    it("a request may arrive in small pieces", async () => {
      const answer = await new Promise<string>((resolve, reject) => {
        const { hostname, port } = new URL(server().origin);
        const socket = connect({ host: hostname, port: Number(port), noDelay: true });
        const bytes = Buffer.from(
          requestText(
            chats(),
            [host, key(), json, "Content-Length: 17", "Connection: close"],
            '{"name":"é😀"}',
          ),
        );
        let text = "";
        socket.on("data", (chunk: Buffer) => {
          text += chunk.toString();
        });
        socket.on("error", reject);
        socket.on("close", () => resolve(text));
        void (async () => {
          for (const byte of bytes) {
            await new Promise((next) => socket.write(Buffer.from([byte]), next));
          }
        })();
      });
      expect(answer).toMatch(/^HTTP\/1\.1 201 /);
    });

    it("100-continue is answered, and then the request", async () => {
      const { answers, interim } = await raw(
        server().origin,
        [
          requestText(chats(), [host, key(), json, "Expect: 100-continue", "Content-Length: 2"]),
          "{}",
        ],
        { methods: ["POST"] },
      );
      expect(interim).toEqual([100]);
      expect(answers[0]?.status).toBe(201);
    });

    it("chunks make a body", async () => {
      const text = '4;x=y\r\n{"na\r\n9\r\nme":"abc"\r\n1\r\n}\r\n0\r\nX-Trailer: 1\r\n\r\n';
      const answer = await one([requestText(chats(), [host, key(), json, chunked], text)], {
        method: "POST",
      });
      expect(answer.status, answer.text).toBe(201);
      expect(answer.body.data.name).toBe("abc");
    });

    it("chunks of 64 KiB together are accepted", async () => {
      const text = `2\r\n{}\r\nfffe\r\n${" ".repeat(65_534)}\r\n0\r\n\r\n`;
      const answer = await one([requestText(chats(), [host, key(), json, chunked], text)], {
        method: "POST",
      });
      expect(answer.status, answer.text).toBe(201);
    });

    it("a character may be split between chunks", async () => {
      const bytes = Buffer.from('{"name":"😀"}');
      const chunk = (part: Uint8Array) =>
        Buffer.concat([Buffer.from(`${part.length.toString(16)}\r\n`), part, Buffer.from("\r\n")]);
      const answer = await one(
        [
          requestText(chats(), [host, key(), json, chunked], ""),
          chunk(bytes.subarray(0, 11)),
          chunk(bytes.subarray(11)),
          "0\r\n\r\n",
        ],
        { method: "POST" },
      );
      expect(answer.status, answer.text).toBe(201);
      expect(answer.body.data.name).toBe("😀");
    });

    it("pipelined requests are answered in order", async () => {
      const { answers } = await raw(
        server().origin,
        [
          requestText(details(), [host, key(), ""]),
          requestText(chats(), [host, key(), json, "Content-Length: 2"], "{}"),
          requestText(`GET /nope HTTP/1.1`, [host, ""]),
          requestText(chats(), [host, key(), json, "Content-Length: 1"], "{"),
          requestText(details(), [host, ""]),
        ],
        { methods: ["GET", "POST", "GET", "POST", "GET"] },
      );
      expect(answers.map(({ status }) => status)).toEqual([200, 201, 404, 400, 401]);
    });

    it("a body on a GET is ignored, and the next request is read behind it", async () => {
      const { answers } = await raw(
        server().origin,
        [
          requestText(details(), [host, key(), "Content-Length: 5"], "GET /"),
          requestText(details(), [host, key(), ""]),
        ],
        { methods: ["GET", "GET"] },
      );
      expect(answers.map(({ status }) => status)).toEqual([200, 200]);
    });

    for (const protocol of ["websocket", "h2c", "TLS/1.0", "nonsense"])
      it(`an upgrade to ${protocol} is refused`, async () => {
        const headers = [host, key(), "Connection: Upgrade", `Upgrade: ${protocol}`];
        expectGeneral(await one([requestText(details(), [...headers, ""])]), 400);
      });

    it("a client that goes away leaves the server as it was", async () => {
      const { hostname, port } = new URL(server().origin);
      for (let n = 0; n < 20; n++) {
        const socket = connect({ host: hostname, port: Number(port) });
        await new Promise((resolve) => socket.once("connect", resolve));
        socket.write(requestText(chats(), [host, key(), json, "Content-Length: 100"], '{"na'));
        socket.resetAndDestroy();
      }
      expect((await api(server(), "/details")).status).toBe(200);
    });
  });
};
