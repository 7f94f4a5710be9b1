import { beforeAll, describe, expect, it } from "vitest";
import {
  api,
  askApi,
  askQuestion,
  createChat,
  expectNoChat,
  listChats,
  listEntries,
  unique,
  type Chat,
  type Entry,
  type Server,
} from "../client.ts";

/** Requests for chats of another chatbot get exactly the same responses as those for chats that do not exist. */
export const tenants = (server: Server): void => {
  describe("another chatbot's chats", () => {
    const tag = unique();
    let foreign: Chat;
    let entry: Entry;
    /** Finds an id that only the other chatbot has: ids are unique within a chatbot only. */
    beforeAll(async () => {
      const { otherKey } = server();
      const own = await createChat(server());
      do foreign = await createChat(server(), { name: tag, userRef: tag }, otherKey);
      while (foreign.id <= own.id);
      const [newest] = (await listChats(server(), "limit=1")).data;
      while (foreign.id <= (newest?.id ?? 0))
        foreign = await createChat(server(), { name: tag, userRef: tag }, otherKey);
      entry = await askQuestion(server(), { chat_id: foreign.id, query: tag }, otherKey);
    });
    const missing = 9007199254740991;

    for (const query of ["", "?limit=1", "?id=1", "?page=100&orderBy=question"])
      it(`the history${query} of another chatbot's chat gets the same response as that of a missing chat, byte for byte`, async () => {
        const same = { headers: { "x-request-id": "same" } };
        const answer = await api(server(), `/chats/${foreign.id}/history${query}`, same);
        expectNoChat(answer);
        const other = await api(server(), `/chats/${missing}/history${query}`, same);
        expect(answer.text).toBe(other.text);
        const { date: _, ...headers } = answer.headers;
        const { date: __, ...otherHeaders } = other.headers;
        expect(headers).toEqual(otherHeaders);
      });

    it("invalid values are refused first, for another chatbot's chat as for a missing one", async () => {
      const path = (id: number) => `/chats/${id}/history?limit=0`;
      const answer = await api(server(), path(foreign.id));
      expect(answer.status).toBe(422);
      expect(answer.text).toBe((await api(server(), path(missing))).text);
    });

    it("an ask in another chatbot's chat gets the same response as one in a missing chat, byte for byte", async () => {
      const answer = await askApi(server(), { json: { chat_id: foreign.id, query: "port" } });
      expectNoChat(answer);
      const other = await askApi(server(), { json: { chat_id: missing, query: "port" } });
      expect(answer.text).toBe(other.text);
      const { total } = await listEntries(server(), foreign.id, "", server().otherKey);
      expect(total).toBe(2);
    });

    for (const query of ["userRef=TAG", "search=TAG", "id=ID", "id=ID&userRef=TAG&search=TAG"])
      it(`${query} does not find another chatbot's chats`, async () => {
        const filled = query.replaceAll("TAG", tag).replace("ID", String(foreign.id));
        expect(await listChats(server(), filled)).toEqual({ data: [], total: 0 });
        const theirs = await listChats(server(), filled, server().otherKey);
        expect(theirs.data).toContainEqual(foreign);
      });

    it("another chatbot's chats are not counted", async () => {
      const before = (await listChats(server(), "limit=1")).total;
      await createChat(server(), {}, server().otherKey);
      expect((await listChats(server(), "limit=1")).total).toBe(before);
    });

    it("another chatbot's entries cannot be found by id in a chat of one's own", async () => {
      const own = await createChat(server());
      const { data } = await listEntries(server(), own.id, `id=${entry.id}`);
      for (const { chat_id } of data) expect(chat_id).toBe(own.id);
    });

    it("each chatbot has its own hello message and settings", async () => {
      const chat = await createChat(server(), {}, server().otherKey);
      const { data } = await listEntries(server(), chat.id, "", server().otherKey);
      expect(data).toMatchObject([{ question: "", answer: "Welcome" }]);
    });
  });
};
