import { expect, it } from "vitest";
import { visitorToken } from "../../visitorToken.ts";
import {
  api,
  askApi,
  askQuestion,
  askStream,
  createChat,
  listChats,
  listEntries,
  parseEvents,
  postEntry,
  unique,
  type Server,
  skipUnlessOurs,
} from "../client.ts";

/** The parameters `include` and `after`, and the order `_lastEntryTime`, in docs/interface.md. */
export const include = (server: Server): void => {
  it("a list of chats has each chat's activity on request", async () => {
    const userRef = unique();
    const key = server().noHelloKey;
    const silent = await createChat(server(), { userRef }, key);
    const chat = await createChat(server(), { userRef }, key);
    await askQuestion(server(), { chat_id: chat.id, query: "port" }, key);
    const last = await askQuestion(server(), { chat_id: chat.id, query: "port" }, key);
    const list = (more: string) => listChats(server(), `userRef=${userRef}${more}`, key);
    expect((await list("")).data).toEqual([chat, silent]);
    expect((await list("&include=activity")).data).toEqual([
      { ...chat, _lastEntryTime: last._createTime, entries: 2 },
      { ...silent, _lastEntryTime: silent._createTime, entries: 0 },
    ]);
  });

  it("a history has metadata, feedback or both on request, and null where there is none", async () => {
    const chat = await createChat(server());
    const [hello] = (await listEntries(server(), chat.id)).data;
    const entry = await postEntry(server(), chat.id, { text: "t", metadata: { author: "Ann" } });
    const list = async (query: string) =>
      (await listEntries(server(), chat.id, `orderBy=id&${query}`)).data;
    const feedback = { rating: null, comment: null };
    const [metadata, none] = [{ metadata: { author: "Ann" } }, { metadata: null }];
    for (const [query, helloExtra, extra] of [
      ["include=metadata", none, metadata],
      ["include=feedback", feedback, feedback],
      ["include=metadata,feedback", { ...none, ...feedback }, { ...metadata, ...feedback }],
    ] as const) {
      expect(await list(query)).toEqual([
        { ...hello, ...helloExtra },
        { ...entry, ...extra },
      ]);
    }
    expect(await list("")).toEqual([hello, entry]);
  });

  it("an ask, its stream and a renaming add what their include names", async () => {
    skipUnlessOurs(server);
    const call = { json: { query: "port" } };
    const path = "/?include=metadata,feedback";
    const extra = { metadata: expect.anything(), rating: null, comment: null };
    const plain = await askApi(server(), call, path);
    expect(plain.body.data).toMatchObject(extra);
    const { chat_id } = plain.body.data;
    const renamed = await api(server(), `/chats/${chat_id}?include=activity`, {
      method: "PATCH",
      json: { name: "n" },
    });
    expect(renamed.body.data).toMatchObject({ name: "n", entries: 1 });
    expect(renamed.body.data._lastEntryTime).toBe(plain.body.data._createTime);
    const streamed = parseEvents((await askStream(server(), call, path)).text);
    expect(streamed.at(-1)!.data.data).toMatchObject(extra);
    const without = parseEvents((await askStream(server(), call)).text).at(-1)!.data.data;
    expect(Object.keys(without)).not.toContain("metadata");
  });

  it("requests that know no include ignore it", async () => {
    for (const query of ["?include=nope", "?include=a&include=b"]) {
      expect((await api(server(), `/details${query}`)).status).toBe(200);
      const { body } = await api(server(), `/chats${query}`, { json: {} });
      expect(body.status).toBe(201);
      const deletion = { method: "DELETE", key: server().fullKey };
      expect((await api(server(), `/chats/${body.data.id}${query}`, deletion)).status).toBe(200);
    }
  });

  it("a history after an id has only the entries with greater ids, pages and counts them", async () => {
    const chat = await createChat(server());
    for (let n = 0; n < 4; n++) await postEntry(server(), chat.id, { text: `t${n}` });
    const { data } = await listEntries(server(), chat.id, "orderBy=id");
    const after = (index: number, query = "") =>
      listEntries(server(), chat.id, `after=${data[index]!.id}${query}`);
    expect(await after(1)).toEqual({ data: data.slice(2).toReversed(), total: 3 });
    expect(await after(1, "&orderBy=id&limit=2&page=2")).toEqual({ data: [data[4]], total: 3 });
    expect(await after(1, `&id=${data[1]!.id}`)).toEqual({ data: [], total: 0 });
    expect(await after(1, `&id=${data[2]!.id}`)).toEqual({ data: [data[2]], total: 1 });
    expect(await after(4)).toEqual({ data: [], total: 0 });
    expect((await listEntries(server(), chat.id, "after=0")).total).toBe(5);
  });

  it("a list by _lastEntryTime has the chats in the order of their last entries, for a key and for a visitor", async () => {
    const userRef = unique();
    const visitor = visitorToken(server().key, userRef);
    const chats = [];
    for (let n = 0; n < 3; n++) chats.push((await createChat(server(), { userRef })).id);
    // An entry of its own millisecond.
    await new Promise((resolve) => setTimeout(resolve, 5));
    await postEntry(server(), chats[0]!, { text: "t" });
    const order = [chats[0], chats[2], chats[1]];
    const query = "orderBy=_lastEntryTime&orderBy=id&desc=true&desc=true";
    for (const [filter, key] of [
      [`userRef=${userRef}&`, undefined],
      ["", visitor],
    ] as const) {
      const page = await listChats(server(), `${filter}${query}`, key);
      expect(page.data.map(({ id }) => id)).toEqual(order);
      const ascending = await listChats(server(), `${filter}orderBy=_lastEntryTime`, key);
      expect(ascending.data.at(-1)!.id).toBe(chats[0]);
      expect(ascending.data.every((chat) => !("entries" in chat))).toBe(true);
    }
    const all = await listChats(server(), `${query}&limit=1`);
    expect(all.total).toBeGreaterThanOrEqual(3);
  });
};
