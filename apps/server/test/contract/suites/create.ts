import { describe, expect, it } from "vitest";
import {
  api,
  createChat,
  expectGeneral,
  expectInvalid,
  listChats,
  listEntries,
  unique,
  type Server,
} from "../client.ts";
import { clean, hostileJson, hostileStrings } from "./values.ts";

/** Sends a request to create a chat, with this body. */
const post = (server: Server, body: string | Buffer, type = "application/json") =>
  api(server(), "/chats", { method: "POST", body, headers: { "content-type": type } });

/** The section "Create a chat" in docs/interface.md, and the values that a body can contain. */
export const create = (server: Server): void => {
  describe("create chat", () => {
    it("a chat created with absent or null fields has null in both", async () => {
      for (const fields of [{}, { name: null, userRef: null }])
        expect(await createChat(server(), fields)).toMatchObject({ name: null, userRef: null });
    });

    it("an empty name or userRef stays empty, unlike an absent one", async () => {
      const chat = await createChat(server(), { name: "", userRef: "" });
      expect(chat).toMatchObject({ name: "", userRef: "" });
    });

    it("the hello message is the first entry of a new chat", async () => {
      const chat = await createChat(server());
      const { data, total } = await listEntries(server(), chat.id);
      expect(total).toBe(1);
      expect(data).toMatchObject([
        {
          chat_id: chat.id,
          question: "",
          answer: server().chatBot.helloMessage,
          moderation: "none",
          flagged: false,
        },
      ]);
    });

    it("a new chat has no entries if the chatbot has no hello message", async () => {
      const chat = await createChat(server(), {}, server().noHelloKey);
      const entries = await listEntries(server(), chat.id, "", server().noHelloKey);
      expect(entries).toEqual({ data: [], total: 0 });
    });
  });

  describe("create chat: unknown fields", () => {
    it("unknown fields of a new chat are ignored and not stored", async () => {
      const time = "2001-01-01T00:00:00.000Z";
      const fields = { id: 9007199254740991, _createTime: time, chat_id: "x", admin: true };
      const chat = await createChat(server(), fields);
      expect(chat.id).not.toBe(fields.id);
      expect(chat._createTime).not.toBe(time);
    });

    for (const body of ['{"__proto__":{"name":"x"}}', '{"Name":"x","NAME":"y","name ":"z"}'])
      it(`a new chat takes no value from ${body}`, async () => {
        const answer = await post(server, body);
        expect(answer.status, answer.text).toBe(201);
        expect(answer.body.data).toMatchObject({ name: null, userRef: null });
      });

    it("a new chat takes no value from the query string", async () => {
      const answer = await api(server(), "/chats?name=x&userRef=y&limit=abc", { json: {} });
      expect(answer.status).toBe(201);
      expect(answer.body.data).toMatchObject({ name: null, userRef: null });
    });
  });

  describe("create chat: lengths count code points", () => {
    for (const [field, most] of [
      ["name", 255],
      ["userRef", 60],
    ] as const) {
      for (const [what, character] of [
        ["ASCII letters", "a"],
        ["astral characters", "😀"],
      ] as const) {
        it(`a ${field} of ${most} ${what} is kept`, async () => {
          const value = character.repeat(most);
          const chat = await createChat(server(), { [field]: value });
          expect(chat[field]).toBe(value);
        });
        it(`a ${field} of ${most + 1} ${what} results in 422`, async () => {
          const answer = await api(server(), "/chats", {
            json: { [field]: character.repeat(most + 1) },
          });
          expectInvalid(answer, field);
        });
      }
    }
  });

  describe("create chat: text is returned as it was sent", () => {
    for (const [what, value] of clean)
      it(`the name and userRef of a chat are returned as they were sent: ${what}`, async () => {
        const fields = { name: value, userRef: value };
        const chat = await createChat(server(), fields);
        expect(chat).toMatchObject(fields);
        const listed = await listChats(server(), `id=${chat.id}`);
        expect(listed.data).toEqual([chat]);
      });
  });

  describe("create chat: invalid values result in 422 and are never coerced", () => {
    for (const field of ["name", "userRef"]) {
      for (const [what, json] of hostileJson)
        it(`an invalid ${field} results in 422 and is never coerced: ${what}`, async () => {
          const answer = await post(server, `{"${field}":${json}}`);
          expectInvalid(answer, field);
        });
      for (const [what, value] of hostileStrings)
        it(`an invalid ${field} results in 422 and is never coerced: ${what}`, async () => {
          expectInvalid(await api(server(), "/chats", { json: { [field]: value } }), field);
        });
    }

    it("the response names every invalid field of a new chat, even if the reasons differ", async () => {
      const answer = await api(server(), "/chats", {
        json: { name: "\u0000", userRef: "x".repeat(61) },
      });
      expectInvalid(answer, "name", "userRef");
    });

    it("a rejected request to create a chat stores nothing", async () => {
      const userRef = unique();
      expectInvalid(await api(server(), "/chats", { json: { name: 1, userRef } }), "name");
      expect(await listChats(server(), `userRef=${userRef}`)).toEqual({ data: [], total: 0 });
    });
  });

  describe("create chat: bodies", () => {
    for (const body of ["[]", "null", '"text"'])
      it(`JSON that is not an object results in 422 with the path []: ${body}`, async () => {
        const answer = await post(server, body);
        expect(answer.status, answer.text).toBe(422);
        expect(answer.body.errors.map((error: { path: unknown }) => error.path)).toEqual([[]]);
      });

    for (const body of ["", "{", "{'name':'x'}", "name=x"])
      it(`malformed JSON results in 400: ${JSON.stringify(body)}`, async () => {
        const answer = await post(server, body);
        expectGeneral(answer, 400);
      });

    for (const body of ["\r\n\t{ }\n"])
      it(`white space around JSON is accepted: ${JSON.stringify(body)}`, async () => {
        const answer = await post(server, body);
        expect(answer.status, answer.text).toBe(201);
      });

    it("escapes in JSON are decoded", async () => {
      const answer = await post(server, '{"n\\u0061me":"\\ud83d\\ude00\\n\\/\\u00e9"}');
      expect(answer.body.data.name).toBe("😀\n/é");
    });

    for (const type of ["application/json", "application/json; charset=utf-8", "Application/JSON"])
      it(`the content type ${type} is accepted`, async () => {
        const answer = await api(server(), "/chats", {
          body: "{}",
          headers: { "content-type": type },
        });
        expect(answer.status, answer.text).toBe(201);
      });

    for (const type of [
      undefined,
      "text/plain",
      "application/x-www-form-urlencoded",
      "multipart/form-data; boundary=x",
    ])
      it(`the content type ${type} results in 400`, async () => {
        const answer = await api(server(), "/chats", {
          body: "{}",
          headers: type === undefined ? {} : { "content-type": type },
        });
        expectGeneral(answer, 400);
      });

    it("a body of exactly 64 KiB is accepted", async () => {
      const answer = await post(server, `{}${" ".repeat(65_534)}`);
      expect(answer.status, answer.text).toBe(201);
    });

    it("a body that exceeds 64 KiB by one byte results in 400", async () => {
      const answer = await post(server, `{}${" ".repeat(65_535)}`);
      expectGeneral(answer, 400);
    });

    it("the size limit on a body counts bytes, not characters", async () => {
      const answer = await post(server, `{"x":"${"語".repeat(30_000)}"}`);
      expectGeneral(answer, 400);
    });

    for (const [what, bytes] of [
      ["a lone continuation byte", [0x80]],
      ["an encoded surrogate", [0xed, 0xa0, 0x80]],
      ["Latin-1", [0xe9]],
    ] as const)
      it(`a body that is not UTF-8 results in 400: ${what}`, async () => {
        const body = Buffer.concat([
          Buffer.from('{"name":"'),
          Buffer.from(bytes),
          Buffer.from('"}'),
        ]);
        const answer = await post(server, body);
        expectGeneral(answer, 400);
      });
  });
};
