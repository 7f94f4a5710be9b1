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
      for (let n = 0; n < 30; n++) {
        const query = `port ${n % 10} ${n % 2 === 0 ? "\ufffd" : "😀"}`;
        entries.push(await askQuestion(server(), { chat_id: chat, query }));
      }
      oldestFirst = [...(await list("orderBy=id&limit=1")).data, ...entries];
    });

    it("a page of a history has each entry exactly as the ask returned it, and the total", async () => {
      for (const [query, ascending, from, to] of [
        ["", false, 0, 25],
        ["page=2", false, 25, 31],
        ["limit=7&page=6", false, 0, 0],
        ["desc[]=false", true, 0, 25],
        ["orderBy=id&limit=7&page=2", true, 7, 14],
        ["orderBy=chat_id&desc=true&limit=4&page=2", false, 4, 8],
        ["orderBy[]=chat_id&orderBy[]=id&desc[]=true&desc[]=false&limit=100", true, 0, 31],
        // Parameters of the other list.
        ["search=nothing&userRef=x", false, 0, 25],
      ] as const) {
        const data = ascending ? oldestFirst : oldestFirst.toReversed();
        expect(await list(query), query).toEqual({ data: data.slice(from, to), total: 31 });
      }
    });

    it("the id parameter returns only the entry with that id, if it is in the chat", async () => {
      const entry = oldestFirst[12]!;
      expect(await list(`id=${entry.id}`)).toEqual({ data: [entry], total: 1 });
      expect(await list(`id=${entry.id}&page=2`)).toEqual({ data: [], total: 1 });
      const other = await createChat(server());
      const [hello] = (await listEntries(server(), other.id)).data;
      for (const id of ["9007199254740991", hello?.id])
        expect(await list(`id=${id}`)).toEqual({ data: [], total: 0 });
    });

    it("a chat_id that no chat has is 404, after the query has been checked", async () => {
      const ids = "9007199254740991 9007199254740992 0 -1 1.5 1e2 1%00 abc %D9%A3";
      for (const id of ids.split(" ")) {
        expectNoChat(await api(server(), `/chats/${id}/history`));
        const answer = await api(server(), `/chats/${id}/history?limit=0&desc=x`);
        expectInvalid(answer, "limit", "desc");
      }
      // These cannot be decoded.
      for (const id of ["%zz", "%ff"])
        expect((await api(server(), `/chats/${id}/history`)).status).toBe(404);
    });
  });
};
