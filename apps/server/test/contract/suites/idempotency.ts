import { expect, it } from "vitest";
import {
  api,
  askApi,
  askStream,
  createChat,
  expectGeneral,
  expectInvalid,
  expectNoChat,
  listChats,
  listEntries,
  parseEvents,
  unique,
  type Answer,
  type Server,
} from "../client.ts";

const replayed = (answer: Answer) => answer.headers["idempotent-replayed"];
const json = { "content-type": "application/json" };

/** "Repeating a request: Idempotency-Key" in docs/interface.md. */
export const idempotency = (server: Server): void => {
  const create = (idempotencyKey: string, body: unknown, key = server().key) =>
    api(server(), "/chats", { json: body, key, headers: { "idempotency-key": idempotencyKey } });
  const createText = (idempotencyKey: string, body: string) =>
    api(server(), "/chats", { body, headers: { ...json, "idempotency-key": idempotencyKey } });
  const ask = (idempotencyKey: string, body: unknown, key = server().key) =>
    askApi(server(), { json: body, key, headers: { "idempotency-key": idempotencyKey } });

  it("a repeated creation, compared by its decoded values, returns the same bytes as the first, marked as replayed", async () => {
    const [idempotencyKey, userRef] = [unique(), unique()];
    const first = await create(idempotencyKey, { name: "aé😀", userRef });
    expect(first.status, first.text).toBe(201);
    expect(replayed(first)).toBeUndefined();
    for (const body of [
      JSON.stringify({ name: "aé😀", userRef }),
      ` { "userRef" : "${userRef}" , "name" : "\\u0061\\u00e9😀" } `,
      `{"unknown":[1,2],"name":"aé😀","userRef":"${userRef}"}`,
    ]) {
      const again = await createText(idempotencyKey, body);
      expect(again.text).toBe(first.text);
      expect([again.status, replayed(again)]).toEqual([201, "true"]);
    }
    const listed = await listChats(server(), `userRef=${userRef}`);
    expect(listed).toEqual({ data: [first.body.data], total: 1 });
    expect((await listEntries(server(), first.body.data.id)).total).toBe(1);
  });

  it("a repeated creation with other values, or an ask with its idempotency key, is 422", async () => {
    const idempotencyKey = unique();
    const first = await create(idempotencyKey, { name: "a", userRef: "u" });
    for (const body of [
      { name: "b", userRef: "u" },
      { userRef: "u" },
      { name: "a", userRef: "" },
      { name: "u", userRef: "a" },
    ]) {
      const other = await create(idempotencyKey, body);
      expectInvalid(other, "Idempotency-Key");
      expect(replayed(other)).toBeUndefined();
    }
    expectInvalid(await ask(idempotencyKey, { query: "port" }), "Idempotency-Key");
    expect((await create(idempotencyKey, { name: "a", userRef: "u" })).text).toBe(first.text);
  });

  it("a failed creation does not use up its idempotency key", async () => {
    const idempotencyKey = unique();
    expectInvalid(await create(idempotencyKey, { name: 1 }), "name");
    expectGeneral(await createText(idempotencyKey, "{"), 400);
    expectGeneral(await create(idempotencyKey, {}, server().readKey), 403);
    expectGeneral(await create(idempotencyKey, {}, server().unknownKey), 401);
    const retry = await create(idempotencyKey, { name: "b" });
    expect(retry.status, retry.text).toBe(201);
    expect(replayed(retry)).toBeUndefined();
  });

  it("all of a chatbot's API keys share its idempotency keys, and other chatbots have their own", async () => {
    const idempotencyKey = unique();
    const first = await create(idempotencyKey, { name: "a" });
    const same = await create(idempotencyKey, { name: "a" }, server().writeKey);
    expect(same.text).toBe(first.text);
    expect(replayed(same)).toBe("true");
    const foreign = await create(idempotencyKey, { name: "b" }, server().otherKey);
    expect(foreign.status, foreign.text).toBe(201);
    expect(replayed(foreign)).toBeUndefined();
  });

  it("a repeated ask returns the same bytes as the first, whatever its Accept, On-Disconnect and Last-Event-ID", async () => {
    const idempotencyKey = unique();
    const first = await ask(idempotencyKey, { query: "port" });
    expect(first.status, first.text).toBe(201);
    expect(replayed(first)).toBeUndefined();
    for (const more of [
      {},
      { accept: "application/json" },
      { "on-disconnect": "cancel" },
      { "last-event-id": "1.1" },
    ] as ReadonlyArray<Record<string, string>>) {
      const headers = { ...more, "idempotency-key": idempotencyKey };
      const again = await askApi(server(), { json: { query: "port", chat_id: null }, headers });
      expect(again.text).toBe(first.text);
      expect(replayed(again)).toBe("true");
    }
    const headers = { "idempotency-key": idempotencyKey };
    const streamed = await askStream(server(), { json: { query: "port" }, headers });
    expect(parseEvents(streamed.text).at(-1)?.data).toEqual(first.body);
    expect(replayed(streamed)).toBe("true");
    expect((await listEntries(server(), first.body.data.chat_id)).total).toBe(1);
  });

  it("a repeated ask with a different question or chat is 422", async () => {
    const idempotencyKey = unique();
    const [chat, other] = [await createChat(server()), await createChat(server())];
    const first = await ask(idempotencyKey, { chat_id: chat.id, query: "port" });
    for (const body of [
      { chat_id: chat.id, query: "ports" },
      { chat_id: chat.id, query: "port " },
      { chat_id: other.id, query: "port" },
      { query: "port" },
    ])
      expectInvalid(await ask(idempotencyKey, body), "Idempotency-Key");
    const again = await ask(idempotencyKey, { chat_id: chat.id, query: "port" });
    expect(again.text).toBe(first.text);
  });

  it("a failed ask does not use up its idempotency key", async () => {
    const idempotencyKey = unique();
    const missing = { chat_id: 9007199254740991, query: "port" };
    expectNoChat(await ask(idempotencyKey, missing));
    expectNoChat(await ask(idempotencyKey, missing));
    expectInvalid(await ask(idempotencyKey, {}), "query");
    const retry = await ask(idempotencyKey, { query: "port" });
    expect(retry.status, retry.text).toBe(201);
    expect(replayed(retry)).toBeUndefined();
  });

  it("an Idempotency-Key may have 1 to 255 printable ASCII characters", async () => {
    for (const key of [
      String.fromCharCode(33 + Math.floor(Math.random() * 94)),
      unique().padEnd(255, "k"),
      `${unique()} x!#$%&'()*+,-./:;<=>?@[\\]^_\`{|}~`,
    ]) {
      const first = await create(key, { name: "form" });
      expect(first.status, first.text).toBe(201);
      expect((await create(key, { name: "form" })).text).toBe(first.text);
    }
  });
};
