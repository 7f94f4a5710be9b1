import { beforeAll, describe, expect, it } from "vitest";
import {
  api,
  askQuestion,
  createChat,
  expectInvalid,
  expectNoChat,
  listEntries,
  type Entry,
  type Server,
} from "../client.ts";
import { notIntegers } from "./values.ts";

/** "Read a chat's history" and "Lists" in docs/interface.md. */
export const history = (server: Server): void => {
  describe("history", () => {
    let chat = 0;
    let oldestFirst: ReadonlyArray<Entry> = [];
    const list = (query: string) => listEntries(server(), chat, query);
    // 31 entries: the hello entry and one for each of 30 asks.
    beforeAll(async () => {
      chat = (await createChat(server())).id;
      const entries: Array<Entry> = [];
      for (let n = 0; n < 30; n++)
        entries.push(
          await askQuestion(server(), {
            chat_id: chat,
            query: `port ${n % 10} ${n % 2 === 0 ? "\ufffd" : "😀"}`,
          }),
        );
      oldestFirst = [...(await list("orderBy=id&limit=1")).data, ...entries];
    });

    it("a history has each entry exactly as the ask returned it", async () => {
      expect(await list("orderBy=id&limit=100")).toEqual({ data: oldestFirst, total: 31 });
    });

    it("the ids and times in a history ascend in the order of the asks", async () => {
      for (const [n, entry] of oldestFirst.slice(1).entries()) {
        const before = oldestFirst[n]!;
        expect(entry.id).toBeGreaterThan(before.id);
        expect(entry._createTime >= before._createTime).toBe(true);
      }
    });

    for (const [query, ascending, from, to] of [
      ["", false, 0, 25],
      ["page=2", false, 25, 31],
      ["limit=7&page=6", false, 0, 0],
      ["desc[]=false", true, 0, 25],
      ["orderBy=id&limit=7&page=2", true, 7, 14],
      ["orderBy=chat_id&desc=true&limit=4&page=2", false, 4, 8],
      ["orderBy[]=chat_id&orderBy[]=id&desc[]=true&desc[]=false&limit=100", true, 0, 31],
    ] as const)
      it(`a history with ${query || "no parameters"} has the right page and total`, async () => {
        const data = ascending ? oldestFirst : oldestFirst.toReversed();
        expect(await list(query)).toEqual({ data: data.slice(from, to), total: 31 });
      });

    it("the id parameter returns only the entry with that id, and a total of 1", async () => {
      const entry = oldestFirst[12]!;
      expect(await list(`id=${entry.id}`)).toEqual({ data: [entry], total: 1 });
      expect(await list(`id=${entry.id}&page=2`)).toEqual({ data: [], total: 1 });
    });

    it("the id of an entry outside the chat returns no entries, and a total of 0", async () => {
      const none = { data: [], total: 0 };
      expect(await list("id=9007199254740991")).toEqual(none);
      const other = await createChat(server());
      const [hello] = (await listEntries(server(), other.id)).data;
      expect(await list(`id=${hello?.id}`)).toEqual(none);
    });

    for (const query of ["search=nothing", "userRef=x", "search=a&search=b", "x=1", "Limit=0"])
      it(`a history ignores ${query}`, async () => {
        expect((await list(query)).total).toBe(31);
      });

    for (const parameter of ["limit", "page", "id"]) {
      for (const [what, text] of notIntegers)
        it(`a history rejects ${what} as ${parameter}`, async () => {
          const answer = await api(server(), `/chats/${chat}/history?${parameter}=${text}`);
          expectInvalid(answer, parameter);
        });
    }

    for (const [query, ...parameters] of [
      ["limit=0", "limit"],
      ["limit=101", "limit"],
      ["page=0", "page"],
      ["orderBy=", "orderBy"],
      ["orderBy=name", "orderBy"],
      ["orderBy=userRef", "orderBy"],
      ["orderBy=chatId", "orderBy"],
      ["orderBy=Question", "orderBy"],
      ["orderBy=id&orderBy=id", "orderBy"],
      ["desc=maybe", "desc"],
      ["desc=", "desc"],
      ["desc=true&desc=false", "desc"],
      ["orderBy=id&orderBy=question&desc=true", "desc"],
      ["limit=1&limit=1", "limit"],
      ["id=1&id=1", "id"],
      ["page=1&page=2", "page"],
      ["limit=x&page=y&id=z&orderBy=nope&desc=no", "limit", "page", "id", "orderBy", "desc"],
    ] as const)
      it(`a history rejects ${query}`, async () => {
        expectInvalid(await api(server(), `/chats/${chat}/history?${query}`), ...parameters);
      });
  });

  describe("history of a chat that does not exist", () => {
    const absent = [
      "9007199254740991",
      "0",
      "-1",
      "-0",
      "9007199254740992",
      "9223372036854775808",
      "9".repeat(300),
      "1.5",
      "1.0",
      "1e2",
      "+1",
      "0x1",
      "%201",
      "1%20",
      "1%00",
      "abc",
      "null",
      "NaN",
      "undefined",
      "[object%20Object]",
      "%EF%BC%91",
      "%D9%A3",
      "1,2",
      "1;2",
      "*",
    ];
    for (const id of absent)
      it(`the history of chat_id ${id} is 404 CHAT_DOES_NOT_EXISTS`, async () => {
        expectNoChat(await api(server(), `/chats/${id}/history`));
      });

    for (const id of ["9007199254740991", "0", "abc", "1.5", "%00"])
      it(`the history of chat_id ${id} with invalid query parameters is 422`, async () => {
        const answer = await api(server(), `/chats/${id}/history?limit=0&desc=x`);
        expectInvalid(answer, "limit", "desc");
      });

    it("an unknown parameter does not turn the 404 for a missing chat into a 422", async () => {
      expectNoChat(await api(server(), "/chats/9007199254740991/history?search=%00&x=y"));
    });

    for (const id of ["%zz", "%", "%ff", "%ED%A0%80"])
      it(`the history of chat_id ${id}, which cannot be decoded, is 404`, async () => {
        expect((await api(server(), `/chats/${id}/history`)).status).toBe(404);
      });
  });
};
