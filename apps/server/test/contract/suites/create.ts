import { expect, it } from "vitest";
import { api, createChat, expectGeneral, listChats, listEntries, type Server } from "../client.ts";
import { clean } from "./values.ts";

/** The section "Create a chat" in docs/interface.md, and the bodies of all requests. */
export const create = (server: Server): void => {
  /** Sends a request to create a chat, with this body. */
  const post = (body: string | Buffer, type: string | undefined = "application/json", query = "") =>
    api(server(), `/chats${query}`, { method: "POST", body, headers: { "content-type": type } });

  it("the name and userRef of a chat are returned as they were sent, or null if absent", async () => {
    for (const value of [...clean, "", "a".repeat(60), "😀".repeat(60), null]) {
      const fields = { name: value, userRef: value };
      const chat = await createChat(server(), fields);
      expect(chat).toMatchObject(fields);
      expect((await listChats(server(), `id=${chat.id}`)).data).toEqual([chat]);
    }
    expect(await createChat(server(), {})).toMatchObject({ name: null, userRef: null });
    for (const name of ["a".repeat(255), "😀".repeat(255)])
      expect((await createChat(server(), { name })).name).toBe(name);
    const escaped = await post('{"n\\u0061me":"\\ud83d\\ude00\\n\\/\\u00e9"}');
    expect(escaped.body.data.name).toBe("😀\n/é");
  });

  it("the hello message is the first entry of a new chat", async () => {
    const chat = await createChat(server());
    const { data, total } = await listEntries(server(), chat.id);
    expect(total).toBe(1);
    const answer = server().chatBot.helloMessage;
    expect(data).toMatchObject([
      { chat_id: chat.id, question: "", answer, moderation: "none", flagged: false },
    ]);
  });

  it("a new chat has no entries if the chatbot has no hello message", async () => {
    const silent = await createChat(server(), {}, server().noHelloKey);
    const entries = await listEntries(server(), silent.id, "", server().noHelloKey);
    expect(entries).toEqual({ data: [], total: 0 });
  });

  it("unknown fields and parameters of a new chat are ignored and not stored", async () => {
    const time = "2001-01-01T00:00:00.000Z";
    const fields = { id: 9007199254740991, _createTime: time, chat_id: "x", admin: true };
    const chat = await createChat(server(), fields);
    expect(chat.id).not.toBe(fields.id);
    expect(chat._createTime).not.toBe(time);
    for (const body of ['{"__proto__":{"name":"x"}}', '{"Name":"x","NAME":"y","name ":"z"}']) {
      const { data } = (await post(body, undefined, "?name=x&userRef=y&limit=abc")).body;
      expect(data).toMatchObject({ name: null, userRef: null });
    }
  });

  const latin = (byte: ReadonlyArray<number>) =>
    Buffer.concat([Buffer.from('{"name":"'), Buffer.from(byte), Buffer.from('"}')]);

  it("JSON that is not an object results in 422 with the path []", async () => {
    for (const body of ["[]", "null", '"text"']) {
      const answer = await post(body);
      expect(answer.body).toMatchObject({ status: 422, errors: [{ path: [] }] });
      expect(answer.body.errors).toHaveLength(1);
    }
  });

  it("a body must be JSON in UTF-8, of at most 64 KiB, and of that content type", async () => {
    for (const body of ["", "{", "{'name':'x'}", "name=x", latin([0x80]), latin([0xe9])])
      expectGeneral(await post(body), 400);
    // An encoded surrogate.
    expectGeneral(await post(latin([0xed, 0xa0, 0x80])), 400);
    // The limit counts bytes.
    for (const body of [`{}${" ".repeat(65_535)}`, `{"x":"${"語".repeat(30_000)}"}`])
      expectGeneral(await post(body), 400);
    for (const type of ["text/plain", "application/jsonx", "multipart/form-data; boundary=x"])
      expectGeneral(await post("{}", type), 400);
    expectGeneral(await api(server(), "/chats", { body: "{}" }), 400);
    for (const body of ["\r\n\t{ }\n", `{}${" ".repeat(65_534)}`])
      expect((await post(body)).status).toBe(201);
    for (const type of ["application/json; charset=utf-8", "Application/JSON"])
      expect((await post("{}", type)).status).toBe(201);
  });
};
