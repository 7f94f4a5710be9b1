import { expect, it } from "vitest";
import { visitorToken } from "../../visitorToken.ts";
import {
  api,
  askApi,
  askQuestion,
  createChat,
  expectGeneral,
  expectInvalid,
  expectNoChat,
  expectNoEntry,
  listChats,
  listEntries,
  postEntry,
  unique,
  type Answer,
  type Call,
  type Server,
  skipUnlessOurs,
} from "../client.ts";
import { clean } from "./values.ts";

const json = { "content-type": "application/json" };
/** Ids in a path that no chat and no entry has. */
const absentIds = ["9007199254740991", "0", "1.5", "abc"];

/** Renaming and deleting a chat, rating an entry and posting one, as docs/interface.md describes them. */
export const changes = (server: Server): void => {
  const call = (method: string, path: string, more: Call = {}): Promise<Answer> =>
    api(server(), path, { method, key: server().fullKey, ...more });
  const rename = (chat: number | string, fields: unknown, query = "") =>
    call("PATCH", `/chats/${chat}${query}`, { json: fields });
  const remove = (chat: number | string, more?: Call) => call("DELETE", `/chats/${chat}`, more);
  const rate = (chat: number | string, entry: number | string, fields: unknown, query = "") =>
    call("PATCH", `/chats/${chat}/history/${entry}${query}`, { json: fields });
  const post = (chat: number | string, fields: unknown, headers = {}, query = "") =>
    call("POST", `/chats/${chat}/history${query}`, { json: fields, headers });
  const requests = (
    [
      ["a renaming", "PATCH", "", { name: "n" }],
      ["a deletion", "DELETE", "", undefined],
      ["a rating", "PATCH", "/history/1", { rating: "good" }],
      ["a post", "POST", "/history", { text: "t" }],
    ] as const
  ).map(([what, method, path, json]) => ({
    what,
    request: (chat: number | string, more: Call = json ? { json } : {}) =>
      call(method, `/chats/${chat}${path}`, more),
    json,
  }));

  for (const { json: fields, request, what } of requests) {
    it(`${what} in a chat that does not exist is 404`, async () => {
      for (const id of absentIds) expectNoChat(await request(id));
    });

    it(`${what} in another chatbot's chat is 404, and changes nothing`, async () => {
      skipUnlessOurs(server);
      const chat = await createChat(server(), {}, server().otherKey);
      expectNoChat(await request(chat.id));
      const listed = await listChats(server(), `id=${chat.id}`, server().otherKey);
      expect(listed).toEqual({ data: [chat], total: 1 });
    });

    if (fields !== undefined)
      it(`${what} needs a JSON object in its body, and is checked before its chat`, async () => {
        for (const more of [
          { body: "{}" },
          { body: "{}", headers: { "content-type": "text/plain" } },
          { body: "{", headers: json },
          { body: "{}".padEnd(what === "a post" ? 163_841 : 65_537, " "), headers: json },
        ])
          expectGeneral(await request(0, more), 400);
        const noObject = await request(0, { json: [] });
        expect(noObject.body).toMatchObject({ status: 422, errors: [{ path: [] }] });
      });
  }

  it("a new name is returned and listed, null removes it, and an absent one stays", async () => {
    const chat = await createChat(server(), { name: "a", userRef: unique() });
    for (const [fields, name] of [
      ...clean.map((name) => [{ name }, name] as const),
      [{ name: "😀".repeat(255) }, "😀".repeat(255)],
      [{ name: "" }, ""],
      [{ name: null }, null],
      [{ name: "b", userRef: "other", id: 1, _createTime: "x" }, "b"],
      [{}, "b"],
    ] as const) {
      const answer = await rename(chat.id, fields);
      expect(answer.body).toEqual({ status: 200, data: { ...chat, name } });
      const { data } = await listChats(server(), `userRef=${chat.userRef}`);
      expect(data).toEqual([{ ...chat, name }]);
    }
  });

  it("a repeated creation returns the chat with its new name", async () => {
    const again = { json: { name: "a" }, headers: { "idempotency-key": unique() } };
    const first = await api(server(), "/chats", again);
    const renamed = await rename(first.body.data.id, { name: "b" });
    const replay = await api(server(), "/chats", again);
    expect(replay.body).toEqual({ status: 201, data: renamed.body.data });
    expect(replay.headers["idempotent-replayed"]).toBe("true");
  });

  it("a deletion returns the chat as it was, and the chat no longer exists", async () => {
    const chat = await createChat(server(), { name: "a", userRef: unique() });
    const entry = await askQuestion(server(), { chat_id: chat.id, query: "port" });
    const deletion = await remove(chat.id);
    expect(deletion.body).toEqual({ status: 200, data: chat });
    expect((await listChats(server(), `userRef=${chat.userRef}`)).total).toBe(0);
    for (const answer of [
      await remove(chat.id),
      await rename(chat.id, { name: "b" }),
      await rate(chat.id, entry.id, { rating: "good" }),
      await post(chat.id, { text: "t" }),
      await api(server(), `/chats/${chat.id}/history`),
      await askApi(server(), { json: { chat_id: chat.id, query: "port" } }),
    ])
      expectNoChat(answer);
  });

  it("a deletion neither needs nor reads a body, whatever its content type", async () => {
    for (const more of [
      { body: "{", headers: json },
      { body: "x", headers: { "content-type": "text/plain" } },
      { body: "" },
    ])
      expect((await remove((await createChat(server())).id, more)).status).toBe(200);
  });

  it("a creation or ask that is repeated after the deletion runs again", async () => {
    const headers = { "idempotency-key": unique() };
    const askHeaders = { "idempotency-key": unique() };
    const create = () => api(server(), "/chats", { json: {}, headers });
    const ask = () => askApi(server(), { json: { query: "port" }, headers: askHeaders });
    for (const [request, idOf] of [
      [create, (answer: Answer) => answer.body.data.id],
      [ask, (answer: Answer) => answer.body.data.chat_id],
    ] as const) {
      const first = await request();
      expect((await remove(idOf(first))).status).toBe(200);
      const second = await request();
      expect(second.status).toBe(201);
      expect(second.headers["idempotent-replayed"]).toBeUndefined();
      expect(idOf(second)).toBeGreaterThan(idOf(first));
    }
  });

  it("the last rating wins, null removes a value, and an absent value stays", async () => {
    const entry = await askQuestion(server(), { query: "port" });
    for (const [fields, rating, comment] of [
      [{}, null, null],
      [{ rating: "good" }, "good", null],
      [{ comment: "😀".repeat(1000) }, "good", "😀".repeat(1000)],
      [{ rating: "bad", comment: "", question: "x" }, "bad", ""],
      [{ rating: null }, null, ""],
      [{ comment: null, rating: "good" }, "good", null],
    ] as const) {
      const answer = await rate(entry.chat_id, entry.id, fields);
      expect(answer.body).toEqual({ status: 200, data: { ...entry, rating, comment } });
      const { data } = await listEntries(server(), entry.chat_id);
      expect(data).toEqual([entry]);
      const query = "include=feedback";
      expect((await listEntries(server(), entry.chat_id, query)).data).toEqual([answer.body.data]);
    }
  });

  it("an entry that is not in the chat is 404 with a code of its own", async () => {
    const entry = await askQuestion(server(), { query: "port" });
    const chat = await createChat(server());
    for (const id of [...absentIds, entry.id])
      expectNoEntry(await rate(chat.id, id, { rating: "good" }));
    expect((await listEntries(server(), entry.chat_id, "include=feedback")).data).toEqual([
      { ...entry, rating: null, comment: null },
    ]);
  });

  it("an ask that is repeated after a rating returns its first bytes, and the rating on request", async () => {
    skipUnlessOurs(server);
    const again = { json: { query: "port" }, headers: { "idempotency-key": unique() } };
    const first = await askApi(server(), again);
    const { chat_id, id } = first.body.data;
    await rate(chat_id, id, { rating: "bad", comment: "c" });
    expect((await askApi(server(), again)).text).toBe(first.text);
    const replay = await askApi(server(), again, "/?include=feedback,metadata");
    const { metadata, ...rest } = replay.body.data;
    expect(rest).toEqual({ ...first.body.data, rating: "bad", comment: "c" });
    expect(Object.keys(metadata)).not.toEqual([]);
    expect(replay.headers["idempotent-replayed"]).toBe("true");
  });

  it("a posted entry has no question, and stands in the history with its metadata", async () => {
    const chat = await createChat(server());
    for (const [text, metadata] of [
      ...clean.map((text) => [text, { [text]: [text, null, 1.5, true] }] as const),
      ["😀".repeat(10_000), { b: 1, a: { d: [], c: "é".repeat(8_174) } }],
      ["t", { a: JSON.parse("[".repeat(99) + "]".repeat(99)) }],
      ["t", {}],
      ["t", { author: "😀".repeat(60) }],
      ["t", null],
      ["t", undefined],
    ] as const) {
      const entry = await postEntry(server(), chat.id, { text, metadata });
      expect(entry).toMatchObject({ chat_id: chat.id, question: "", answer: text });
      expect(entry).toMatchObject({ moderation: "none", flagged: false });
      expect((await listEntries(server(), chat.id, "limit=1")).data).toEqual([entry]);
      const included = await listEntries(server(), chat.id, "limit=1&include=metadata");
      // The order of the keys counts, too.
      expect(JSON.stringify(included.data[0]!.metadata)).toBe(JSON.stringify(metadata ?? null));
    }
  });

  it("a repeated post stores nothing twice, and encodes the entry with its own include", async () => {
    const chat = await createChat(server());
    const headers = { "idempotency-key": unique() };
    const fields = { text: "t", metadata: { author: "Ann" } };
    const first = await post(chat.id, fields, headers);
    expect(first.headers["idempotent-replayed"]).toBeUndefined();
    expect((await post(chat.id, { ...fields, more: 1 }, headers)).text).toBe(first.text);
    await rate(chat.id, first.body.data.id, { rating: "good" });
    const replay = await post(chat.id, fields, headers, "?include=metadata,feedback");
    expect(replay.headers["idempotent-replayed"]).toBe("true");
    const more = { metadata: fields.metadata, rating: "good", comment: null };
    expect(replay.body.data).toEqual({ ...first.body.data, ...more });
    expect((await listEntries(server(), chat.id)).total).toBe(2);
  });

  it("an idempotency key of a post is for no other request", async () => {
    const [chat, other] = [await createChat(server()), await createChat(server())];
    const headers = { "idempotency-key": unique() };
    await post(chat.id, { text: "t" }, headers);
    for (const answer of [
      await post(chat.id, { text: "u" }, headers),
      await post(chat.id, { text: "t", metadata: {} }, headers),
      await post(other.id, { text: "t" }, headers),
      await askApi(server(), { json: { chat_id: chat.id, query: "t" }, headers }),
      await api(server(), "/chats", { json: {}, headers }),
    ])
      expectInvalid(answer, "Idempotency-Key");
  });

  const token = (userRef: string, more = {}) => visitorToken(server().fullKey, userRef, more);

  it("a visitor renames, rates and deletes in its own chats", async () => {
    const [key, userRef] = [token("v"), "v"];
    const chat = await createChat(server(), { userRef });
    const entry = await askQuestion(server(), { chat_id: chat.id, query: "port" }, key);
    const json = { name: "mine" };
    const renamed = await call("PATCH", `/chats/${chat.id}`, { json, key });
    expect(renamed.body.data).toEqual({ ...chat, ...json });
    const path = `/chats/${chat.id}/history/${entry.id}`;
    const rated = await call("PATCH", path, { json: { rating: "good" }, key });
    expect(rated.body.data).toEqual({ ...entry, rating: "good", comment: null });
    const deletion = await call("DELETE", `/chats/${chat.id}`, { key });
    expect(deletion.body.data).toEqual(renamed.body.data);
  });

  it("a change by a visitor in another's chat is the 404 of a missing chat, and changes nothing", async () => {
    const chat = await createChat(server(), { userRef: unique() });
    for (const { json, request } of requests.slice(0, 3))
      expectNoChat(await request(chat.id, { key: token(unique()), ...(json && { json }) }));
    expect((await listChats(server(), `id=${chat.id}`)).data).toEqual([chat]);
  });

  it("a visitor may not post, even if its token names the scope", async () => {
    const userRef = unique();
    const chat = await createChat(server(), { userRef });
    for (const more of [{}, { scope: "read post" }, { scope: "post" }]) {
      const key = token(userRef, more);
      const path = `/chats/${chat.id}/history`;
      expectGeneral(await call("POST", path, { json: { text: "t" }, key }), 403);
    }
    expect((await listEntries(server(), chat.id)).total).toBe(1);
  });

  it("a token without any scope is valid, but receives 403 from every endpoint", async () => {
    for (const scope of ["", "post", "admin Read"]) {
      const key = token(unique(), { scope });
      for (const { request } of requests) expectGeneral(await request(1, { key }), 403);
      for (const path of ["/details", "/chats", "/chats/1/history"])
        expectGeneral(await call("GET", path, { key }), 403);
    }
  });
};
