import { describe, expect, it } from "vitest";
import {
  askApi,
  askPath,
  askQuestion,
  createChat,
  expectGeneral,
  expectInvalid,
  expectNoChat,
  expectNoEndpoint,
  listChats,
  listEntries,
  unique,
  type Server,
} from "../client.ts";
import { clean, hostileJson, hostileStrings } from "./values.ts";

const json = { "content-type": "application/json" };

/** The section "Ask" in docs/interface.md. */
export const ask = (server: Server): void => {
  describe("ask: a new chat", () => {
    it("an ask without chat_id returns its entry with the id of the new chat", async () => {
      const query = `How do I change the port? ${unique()}`;
      const entry = await askQuestion(server(), { query });
      expect(entry).toMatchObject({ question: query, moderation: "none", flagged: false });
      const { data, total } = await listChats(server(), `id=${entry.chat_id}`);
      expect(total).toBe(1);
      expect(data).toMatchObject([{ id: entry.chat_id, name: null, userRef: null }]);
    });

    it("a chat created by an ask has no hello entry, only the ask's entry", async () => {
      const entry = await askQuestion(server(), { query: "port" });
      expect(await listEntries(server(), entry.chat_id)).toEqual({ data: [entry], total: 1 });
    });

    it("each ask without chat_id creates a chat with a higher id", async () => {
      const first = await askQuestion(server(), { query: "port" });
      const between = await createChat(server());
      const second = await askQuestion(server(), { query: "port" });
      expect(between.id).toBeGreaterThan(first.chat_id);
      expect(second.chat_id).toBeGreaterThan(between.id);
    });

    it("a chat_id of null counts as absent", async () => {
      const chat = await createChat(server());
      const entry = await askQuestion(server(), { chat_id: null, query: "port" });
      expect(entry.chat_id).toBeGreaterThan(chat.id);
    });

    it("unknown fields of an ask are ignored", async () => {
      const fields = { query: "port", id: 1, answer: "x", flagged: true, chatId: 1, Chat_id: "x" };
      const entry = await askQuestion(server(), fields);
      expect(entry.flagged).toBe(false);
      expect(entry.answer).not.toBe("x");
    });

    for (const path of ["", "/", "/?query=x&chat_id=abc"])
      it(`asks are accepted at ${JSON.stringify(path)} below the base address`, async () => {
        const answer = await askApi(server(), { json: { query: "port" } }, path);
        expect(answer.status, answer.text).toBe(201);
      });
  });

  describe("ask: continuing a chat", () => {
    it("an ask in a chat adds its entry after the hello entry", async () => {
      const chat = await createChat(server());
      const entry = await askQuestion(server(), { chat_id: chat.id, query: "port" });
      expect(entry.chat_id).toBe(chat.id);
      const { data, total } = await listEntries(server(), chat.id, "orderBy=id");
      expect(total).toBe(2);
      expect(data[0]?.question).toBe("");
      expect(data[1]).toEqual(entry);
    });

    it("each of several overlapping asks in a chat is answered and stored once", async () => {
      const chat = await createChat(server());
      const entries = await Promise.all(
        Array.from({ length: 8 }, (_, n) =>
          askQuestion(server(), { chat_id: chat.id, query: `port ${n}` }),
        ),
      );
      const { data, total } = await listEntries(server(), chat.id, "orderBy=id&limit=100");
      expect(total).toBe(9);
      expect(data.slice(1)).toEqual(entries.toSorted((a, b) => a.id - b.id));
      expect(new Set(entries.map(({ question }) => question)).size).toBe(8);
    });

    for (const spelling of ["ID.0", "0.IDeLEN"])
      it(`a chat_id can be an integer in any JSON notation: ${spelling}`, async () => {
        const { id } = await createChat(server());
        const text = spelling.replace("ID", String(id)).replace("LEN", String(String(id).length));
        const answer = await askApi(server(), {
          body: `{"chat_id":${text},"query":"port"}`,
          headers: json,
        });
        expect(answer.status, answer.text).toBe(201);
        expect(answer.body.data.chat_id).toBe(id);
      });
  });

  describe("ask: the question", () => {
    for (const [what, value] of clean)
      it(`a question is returned as it was sent: ${what}`, async () => {
        const entry = await askQuestion(server(), { query: value });
        expect(entry.question).toBe(value);
        expect((await listEntries(server(), entry.chat_id)).data).toEqual([entry]);
      });

    for (const [what, character] of [
      ["ASCII letters", "a"],
      ["astral characters", "😀"],
    ] as const) {
      it(`a question of 200 ${what} is answered`, async () => {
        const query = character.repeat(200);
        expect((await askQuestion(server(), { query })).question).toBe(query);
      });
      it(`a question of 201 ${what} results in 422`, async () => {
        expectInvalid(await askApi(server(), { json: { query: character.repeat(201) } }), "query");
      });
    }

    for (const [what, value] of hostileStrings)
      it(`an invalid question results in 422: ${what}`, async () => {
        expectInvalid(await askApi(server(), { json: { query: value } }), "query");
      });
    for (const [what, text] of hostileJson)
      it(`an invalid question results in 422: ${what}`, async () => {
        expectInvalid(
          await askApi(server(), { body: `{"query":${text}}`, headers: json }),
          "query",
        );
      });

    for (const body of ["{}", '{"query":null}'])
      it(`a question is required: ${body} results in 4222055`, async () => {
        const answer = await askApi(server(), { body, headers: json });
        expect(answer.body).toEqual({
          status: 422,
          errors: [{ code: 4222055, message: "ASK_DTO_QUERY_NOT_PRESENT", path: ["query"] }],
        });
      });

    it("an empty or blank question has its own error code", async () => {
      const codes = new Set<number>();
      for (const query of ["", "\t\r\n", "\u0085", "\u3000 \u2003"]) {
        const answer = await askApi(server(), { json: { query } });
        expectInvalid(answer, "query");
        expect(answer.body.errors).toHaveLength(1);
        codes.add(answer.body.errors[0].code);
      }
      expect([...codes]).toHaveLength(1);
      expect([...codes]).not.toContain(4222055);
    });

    it("questions that are blank, are too long, are not strings or contain NUL have different error codes", async () => {
      const codes: Array<number> = [];
      for (const query of ["", "x".repeat(201), 1, "\u0000"]) {
        const answer = await askApi(server(), { json: { query } });
        codes.push(answer.body.errors[0].code);
      }
      expect(new Set(codes).size).toBe(4);
    });

    it("an ask results in 422 if its body is not an object, and in 400 if it is malformed, not JSON or too large", async () => {
      const noObject = await askApi(server(), { body: '[{"query":"x"}]', headers: json });
      expect(noObject.body).toMatchObject({ status: 422, errors: [{ path: [] }] });
      for (const body of ["", '{"query":"x"', `{"query":"port"}${" ".repeat(65_536)}`])
        expectGeneral(await askApi(server(), { method: "POST", body, headers: json }), 400);
      const headers = { "content-type": "text/plain" };
      expectGeneral(await askApi(server(), { body: '{"query":"port"}', headers }), 400);
    });
  });

  describe("ask: chat_id", () => {
    for (const text of ['"1"', "1.5", "1e999", "true", "[1]"])
      it(`the chat_id ${text} results in 422`, async () => {
        const body = `{"chat_id":${text},"query":"port"}`;
        expectInvalid(await askApi(server(), { body, headers: json }), "chat_id");
      });

    it("a valid chat_id results in 404 if the chat does not exist", async () => {
      const chat_id = 9007199254740991;
      expectNoChat(await askApi(server(), { json: { chat_id, query: "port" } }));
    });

    for (const text of ["0", "-1", "9007199254740992"])
      it(`the chat_id ${text} is rejected as an invalid value or as a missing chat`, async () => {
        const body = `{"chat_id":${text},"query":"port"}`;
        const answer = await askApi(server(), { body, headers: json });
        if (answer.status === 404) expectNoChat(answer);
        else expectInvalid(answer, "chat_id");
      });

    it("the values in an ask are checked before its chat is looked up", async () => {
      const chat_id = 9007199254740991;
      expectInvalid(await askApi(server(), { json: { chat_id } }), "query");
      expectInvalid(await askApi(server(), { json: { chat_id, query: " " } }), "query");
    });

    it("the response to an ask names every invalid field", async () => {
      expectInvalid(await askApi(server(), { json: { chat_id: "1" } }), "chat_id", "query");
      expectInvalid(
        await askApi(server(), { json: { chat_id: {}, query: "x".repeat(201) } }),
        "chat_id",
        "query",
      );
    });

    it("a rejected ask stores nothing", async () => {
      const before = (await listChats(server(), "limit=1")).total;
      await askApi(server(), { json: { chat_id: "1", query: "port" } });
      await askApi(server(), { json: { query: "" } });
      await askApi(server(), { json: { chat_id: 9007199254740991, query: "port" } });
      expect((await listChats(server(), "limit=1")).total).toBe(before);
    });
  });

  describe("ask: On-Disconnect", () => {
    const askWith = (value: string, body: object = { query: "port" }) =>
      askApi(server(), { json: body, headers: { "on-disconnect": value } });

    for (const value of ["cancel", "finish", "CANCEL", "Finish"])
      it(`On-Disconnect accepts ${value}`, async () => {
        expect((await askWith(value)).status).toBe(201);
      });

    for (const value of ["", "nonsense"])
      it(`an On-Disconnect of ${JSON.stringify(value)} results in 422, which also names every other invalid value`, async () => {
        expectInvalid(await askWith(value), "On-Disconnect");
        expectInvalid(await askWith(value, { chat_id: "1" }), "On-Disconnect", "chat_id", "query");
      });
  });

  describe("ask: other paths and methods", () => {
    for (const method of ["GET", "PUT"])
      for (const path of ["", "/"])
        it(`${method} ${JSON.stringify(path)} below the answers interface is not an endpoint`, async () => {
          const answer = await askApi(server(), { method }, path);
          expectNoEndpoint(answer, method, `${askPath(server())}${path}`);
        });
    for (const path of ["//", "/x"])
      it(`POST ${path} below the answers interface is not an endpoint`, async () => {
        const answer = await askApi(server(), { json: { query: "port" } }, path);
        expectNoEndpoint(answer, "POST", `${askPath(server())}${path}`);
      });
  });
};
