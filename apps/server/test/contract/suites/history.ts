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

    for (const query of ["search=nothing", "userRef=x"])
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
      ["limit=101", "limit"],
      ["orderBy=name", "orderBy"],
      ["desc=maybe", "desc"],
      ["orderBy=id&orderBy=question&desc=true", "desc"],
      ["limit=1&limit=1", "limit"],
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
      "9007199254740992",
      "1.5",
      "1e2",
      "1%00",
      "abc",
      "%D9%A3",
    ];
    for (const id of absent)
      it(`the history of chat_id ${id} is 404 CHAT_DOES_NOT_EXISTS`, async () => {
        expectNoChat(await api(server(), `/chats/${id}/history`));
      });

    for (const id of ["9007199254740991", "abc"])
      it(`the history of chat_id ${id} with invalid query parameters is 422`, async () => {
        const answer = await api(server(), `/chats/${id}/history?limit=0&desc=x`);
        expectInvalid(answer, "limit", "desc");
      });

    for (const id of ["%zz", "%ff"])
      it(`the history of chat_id ${id}, which cannot be decoded, is 404`, async () => {
        expect((await api(server(), `/chats/${id}/history`)).status).toBe(404);
      });
  });
};
