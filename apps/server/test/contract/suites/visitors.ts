import { expect, it } from "vitest";
import { visitorToken } from "../../visitorToken.ts";
import {
  api,
  askApi,
  askQuestion,
  askStream,
  createChat,
  expectGeneral,
  listChats,
  parseEvents,
  unique,
  type Server,
} from "../client.ts";

/** What docs/visitors.md promises about a visitor's token. */
export const visitors = (server: Server): void => {
  const token = (userRef: string, more = {}) => visitorToken(server().key, userRef, more);

  it("a visitor sees only the chats that it created, explicitly or by asking", async () => {
    const [user, tag] = [unique(), unique()];
    const key = token(user);
    await createChat(server(), { name: tag });
    await createChat(server(), { name: tag }, token(unique()));
    const created = [
      await createChat(server(), { name: tag }, key),
      await createChat(server(), { name: tag, userRef: user }, key),
      await createChat(server(), { name: tag, userRef: null }, key),
    ];
    expect(created.map(({ userRef }) => userRef)).toEqual([user, user, user]);
    const asks = [
      await askQuestion(server(), { query: "port" }, key),
      (
        await askApi(server(), {
          json: { query: "port" },
          key,
          headers: { "idempotency-key": "k" },
        })
      ).body.data,
      parseEvents((await askStream(server(), { json: { query: "port" }, key })).text).at(-1)!.data
        .data,
    ];
    const ids = [...created.map(({ id }) => id), ...asks.map(({ chat_id }) => chat_id)];
    const page = await listChats(server(), "limit=100", key);
    expect(page.data.map(({ id }) => id)).toEqual(ids.toReversed());
    expect(page.total).toBe(6);
    // The key's holder sees them, too.
    expect(await listChats(server(), `userRef=${user}&limit=100`)).toEqual(page);
    expect((await listChats(server(), `search=${tag}`, key)).total).toBe(3);
    expect((await listChats(server(), `search=${tag}`)).total).toBe(5);
  });

  it("a visitor cannot create a chat for another user", async () => {
    const user = unique();
    for (const userRef of [`${user} `, "", unique()]) {
      const answer = await api(server(), "/chats", { json: { userRef }, key: token(user) });
      expectGeneral(answer, 403);
      expect(answer.body).toMatchObject({ code: 403003, message: "USER_REF_NOT_GRANTED" });
    }
    expect((await listChats(server(), "", token(user))).total).toBe(0);
  });

  it("each visitor has its own idempotency keys", async () => {
    const headers = { "idempotency-key": unique() };
    const [user, other] = [unique().slice(-20), unique().slice(-20)];
    const keys = [server().key, token(user), token(other), token(`${user}\n${other}`)];
    const ids = new Set<number>();
    for (const isAgain of [false, true]) {
      for (const key of keys) {
        const creation = await api(server(), "/chats", { json: { name: "n" }, headers, key });
        expect(creation.status).toBe(201);
        expect(creation.headers["idempotent-replayed"]).toBe(isAgain ? "true" : undefined);
        ids.add(creation.body.data.id);
      }
    }
    expect(ids.size).toBe(keys.length);
  });

  it("a visitor has only the scopes that both its token and its key have", async () => {
    const key = token(unique(), { scope: "read admin" });
    expect((await api(server(), "/details", { key })).status).toBe(200);
    expectGeneral(await api(server(), "/chats", { json: {}, key }), 403);
    expectGeneral(await askApi(server(), { json: { query: "port" }, key }), 403);
    for (const claims of [{}, { scope: "read ask" }]) {
      const key = visitorToken(server().readKey, unique(), claims);
      expect((await api(server(), "/details", { key })).status).toBe(200);
      expectGeneral(await askApi(server(), { json: { query: "port" }, key }), 403);
    }
  });
};
