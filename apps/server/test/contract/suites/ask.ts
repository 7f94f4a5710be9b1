import { expect, it } from "vitest";
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
import { clean } from "./values.ts";

const json = { "content-type": "application/json" };

/** The section "Ask" in docs/interface.md. */
export const ask = (server: Server): void => {
  it("an ask without chat_id creates a chat, which has no hello entry", async () => {
    const before = await createChat(server());
    let newest = before.id;
    for (const more of [{}, { chat_id: null }]) {
      const query = `How do I change the port? ${unique()}`;
      const entry = await askQuestion(server(), { query, ...more });
      expect(entry).toMatchObject({ question: query, moderation: "none", flagged: false });
      expect(entry.chat_id).toBeGreaterThan(newest);
      newest = entry.chat_id;
      const { data } = await listChats(server(), `id=${entry.chat_id}`);
      expect(data).toMatchObject([{ id: entry.chat_id, name: null, userRef: null }]);
      expect(await listEntries(server(), entry.chat_id)).toEqual({ data: [entry], total: 1 });
    }
  });

  it("unknown fields of an ask are ignored", async () => {
    const fields = { query: "port", id: 1, answer: "x", flagged: true, chatId: 1, Chat_id: "x" };
    const entry = await askQuestion(server(), fields);
    expect(entry.flagged).toBe(false);
    expect(entry.answer).not.toBe("x");
  });

  it("each of several overlapping asks in a chat is answered and stored once, after the hello entry", async () => {
    const chat = await createChat(server());
    const entries = await Promise.all(
      Array.from({ length: 8 }, (_, n) =>
        askQuestion(server(), { chat_id: chat.id, query: `port ${n}` }),
      ),
    );
    const { data, total } = await listEntries(server(), chat.id, "orderBy=id&limit=100");
    expect(total).toBe(9);
    expect(data[0]?.question).toBe("");
    expect(data.slice(1)).toEqual(entries.toSorted((a, b) => a.id - b.id));
    expect(new Set(entries.map(({ question }) => question)).size).toBe(8);
  });

  it("a chat_id can be an integer in any JSON notation", async () => {
    const { id } = await createChat(server());
    for (const text of [`${id}.0`, `0.${id}e${String(id).length}`]) {
      const body = `{"chat_id":${text},"query":"port"}`;
      const answer = await askApi(server(), { body, headers: json });
      expect(answer.body, text).toMatchObject({ status: 201, data: { chat_id: id } });
    }
  });

  it("a chat_id that no chat has results in 404, or in 422 if it can be none, and creates none", async () => {
    const before = (await listChats(server(), "limit=1")).total;
    for (const text of ["9007199254740991", "0", "-1", "9007199254740992"]) {
      const body = `{"chat_id":${text},"query":"port"}`;
      const answer = await askApi(server(), { body, headers: json });
      if (answer.status === 404) expectNoChat(answer);
      else expectInvalid(answer, "chat_id");
      if (text.endsWith("991")) expect(answer.status).toBe(404);
    }
    expect((await listChats(server(), "limit=1")).total).toBe(before);
  });

  it("a question is returned as it was sent", async () => {
    for (const query of [...clean, "a".repeat(200), "😀".repeat(200)]) {
      const entry = await askQuestion(server(), { query });
      expect(entry.question).toBe(query);
      expect((await listEntries(server(), entry.chat_id)).data).toEqual([entry]);
    }
  });

  it("an ask results in 422 if its body is not an object, and in 400 if it is malformed, not JSON or too large", async () => {
    const noObject = await askApi(server(), { body: '[{"query":"x"}]', headers: json });
    expect(noObject.body).toMatchObject({ status: 422, errors: [{ path: [] }] });
    for (const body of ["", '{"query":"x"', `{"query":"port"}${" ".repeat(65_536)}`])
      expectGeneral(await askApi(server(), { method: "POST", body, headers: json }), 400);
    const headers = { "content-type": "text/plain" };
    expectGeneral(await askApi(server(), { body: '{"query":"port"}', headers }), 400);
  });

  it("On-Disconnect accepts cancel and finish in any case", async () => {
    for (const value of ["cancel", "FINISH"]) {
      const call = { json: { query: "port" }, headers: { "on-disconnect": value } };
      expect((await askApi(server(), call)).status).toBe(201);
    }
  });

  it("asks are accepted only with POST and at the base address, with or without a slash", async () => {
    const call = { json: { query: "port" } };
    for (const path of ["", "/", "/?query=x&chat_id=abc"])
      expect((await askApi(server(), call, path)).status, path).toBe(201);
    for (const [method, path] of [
      ["GET", ""],
      ["GET", "/"],
      ["PUT", ""],
      ["PUT", "/"],
      ["POST", "//"],
      ["POST", "/x"],
    ] as const)
      expectNoEndpoint(
        await askApi(server(), method === "POST" ? call : { method }, path),
        method,
        `${askPath(server())}${path}`,
      );
  });
};
