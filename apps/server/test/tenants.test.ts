/**
 * Requests for the rows of another tenant (a chatbot or a visitor) receive the same bytes, and run the same statements,
 * as requests for rows that do not exist.
 */
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import {
  api,
  askApi,
  askQuestion,
  askStream,
  createChat,
  listChats,
  parseEvents,
  unique,
  type Answer,
  type Call,
  type Chat,
  type Entry,
} from "./contract/client.ts";
import { launch, type TestServer } from "./contract/launch.ts";
import { visitorToken } from "./visitorToken.ts";
import { startWireTap, type WireTap } from "./WireTap.ts";

const missing = {
  chat: 9007199254740990,
  entry: 9007199254740989,
};

/**
 * Matches statements that belong to the process rather than to a request: from time to time, it looks up API keys and
 * records their use, deletes old idempotency keys, and probes the database.
 */
const background = /\bapi_key\b|^\s*delete from idempotency_key\b|^select (1|clock_timestamp\(\))$/;

const withoutBackground = (units: ReadonlyArray<ReadonlyArray<string>>) =>
  units.filter((unit) => !unit.some((statement) => background.test(statement))).flat();

/** The status, the bytes and the headers, without the time and the request id. */
const comparable = ({
  headers: { date: _, "x-request-id": __, ...headers },
  status,
  text,
}: Answer) => ({
  status,
  text,
  headers,
});

/** The same, but without any ids and times, which always differ. */
const comparableCreation = (answer: Answer) => {
  const {
    headers: { "content-length": _, ...headers },
    status,
    text,
  } = comparable(answer);
  const plain = text
    .replace(/"(id|chat_id)":\d+/g, '"$1":0')
    .replace(/"_createTime":"[^"]+"/g, '"_createTime":""')
    .replace(/^id: \S+\./gm, "id: ");
  return { status, text: plain, headers };
};

describe.each(["chatbots", "visitors"] as const)("a server with two %s", (tenants) => {
  let tap: WireTap;
  let testServer: TestServer;
  /** An entry that belongs to the other tenant, and a chat of our own. */
  let theirs: Entry;
  let ours: Chat;
  let keys: { readonly key: string; readonly otherKey: string };
  const target = () => ({ ...testServer.target, ...keys });

  beforeAll(async () => {
    tap = await startWireTap(inject("postgresUrl"));
    const settings = { DATABASE_URL: tap.url, PARLEY_SCHEMA: `tenants_${unique()}` };
    testServer = await launch("postgres", settings);
    const { key, otherKey } = testServer.target;
    keys =
      tenants === "chatbots"
        ? { key, otherKey }
        : { key: visitorToken(key, "we"), otherKey: visitorToken(key, "they") };
    theirs = await askQuestion(target(), { query: "port" }, target().otherKey);
    ours = await createChat(target());
  });
  afterAll(async () => {
    await testServer?.stop();
    tap?.close();
  });

  /**
   * Checks that requests for a foreign row and for a missing row receive the same response and run the same statements.
   * Returns both.
   */
  const both = async <A>(
    request: (theirs: boolean) => Promise<Answer>,
    tell: (a: Answer) => A,
    least = 1,
  ) => {
    const results = [];
    for (const foreign of [true, false]) {
      tap.take();
      const answer = await request(foreign);
      // By the end of this request, any statements that follow the response have been sent.
      await listChats(target(), "id=1");
      results.push({ answer: tell(answer), statements: withoutBackground(tap.take()) });
    }
    const [foreign, absent] = results;
    expect(foreign!.answer).toEqual(absent!.answer);
    expect(foreign!.statements).toEqual(absent!.statements);
    expect(foreign!.statements.length).toBeGreaterThan(least);
    return foreign!;
  };

  for (const query of ["", "?id=ENTRY", "?orderBy=question"]) {
    it(`the history${query} of another tenant's chat looks like that of a missing chat`, async () => {
      const { answer } = await both(
        (foreign) =>
          api(
            target(),
            `/chats/${foreign ? theirs.chat_id : missing.chat}/history${query.replace("ENTRY", String(theirs.id))}`,
          ),
        comparable,
      );
      expect(answer.status).toBe(404);
    });
  }

  it("in one's own chat, another tenant's entry looks like a missing entry", async () => {
    const { answer } = await both(
      (foreign) =>
        api(target(), `/chats/${ours.id}/history?id=${foreign ? theirs.id : missing.entry}`),
      comparable,
    );
    expect(answer.text).toBe('{"status":200,"data":[],"meta":{"total":0}}');
  });

  for (const query of [
    "id=ID",
    "userRef=TEXT",
    "search=PART",
    "userRef=TEXT&search=PART",
    "userRef=TEXT&orderBy=name",
  ]) {
    it(`a list with ${query} contains none of another tenant's chats`, async () => {
      const { answer } = await both(
        async (foreign) => {
          const text = unique();
          const { id } = foreign
            ? await createChat(
                target(),
                { name: text, userRef: tenants === "chatbots" ? text : "they" },
                target().otherKey,
              )
            : { id: missing.chat };
          tap.take();
          const filled = query
            .replace("ID", String(id))
            .replaceAll("TEXT", tenants === "visitors" && foreign ? "they" : text)
            .replaceAll("PART", text.slice(3, 20));
          return api(target(), `/chats?${filled}`);
        },
        comparable,
        // Listing another user's chats as a visitor needs no statement.
        tenants === "visitors" && query.includes("userRef") ? 0 : undefined,
      );
      expect(answer.text).toBe('{"status":200,"data":[],"meta":{"total":0}}');
    });
  }

  const asks: ReadonlyArray<readonly [string, () => Call]> = [
    ["asking", () => ({})],
    ["asking with an idempotency key", () => ({ headers: { "idempotency-key": unique() } })],
    [
      "resuming a stream",
      () => ({
        headers: {
          accept: "text/event-stream",
          "idempotency-key": unique(),
          "last-event-id": `${crypto.randomUUID()}.1`,
        },
      }),
    ],
  ];
  for (const [what, call] of asks) {
    it(`${what} in another tenant's chat fails as it does in a missing chat`, async () => {
      const { answer } = await both(
        (foreign) =>
          askApi(target(), {
            ...call(),
            json: { chat_id: foreign ? theirs.chat_id : missing.chat, query: "port" },
          }),
        comparable,
      );
      expect(answer.status).toBe(404);
    });
  }

  it("a creation with another tenant's idempotency key is not a repeat", async () => {
    const { answer } = await both(async (foreign) => {
      const call = { json: { name: "n" }, headers: { "idempotency-key": unique() } };
      if (foreign) await api(target(), "/chats", { ...call, key: target().otherKey });
      tap.take();
      return api(target(), "/chats", call);
    }, comparableCreation);
    expect(answer.status).toBe(201);
    expect(answer.headers).not.toHaveProperty("idempotent-replayed");
  });

  for (const accept of ["application/json", "text/event-stream"]) {
    it(`an ask for ${accept} with another tenant's idempotency key and event id is not a repeat`, async () => {
      const { answer } = await both(async (foreign) => {
        const headers = { accept: "text/event-stream", "idempotency-key": unique() };
        const json = { query: "port" };
        let eventId = `${crypto.randomUUID()}.1`;
        if (foreign) {
          const answered = await askStream(target(), { json, headers, key: target().otherKey });
          eventId = parseEvents(answered.text)[0]!.id;
        }
        tap.take();
        return askStream(target(), {
          json,
          headers: { ...headers, accept, "last-event-id": eventId },
        });
      }, comparableCreation);
      expect(answer.status).toBe(accept === "application/json" ? 201 : 200);
      expect(answer.headers).not.toHaveProperty("idempotent-replayed");
    });
  }

  it("totals count only a tenant's own rows, and run the same statements", async () => {
    const before = (await api(target(), "/chats?limit=1")).body.meta.total;
    const { answer } = await both(async (foreign) => {
      if (foreign) await createChat(target(), {}, target().otherKey);
      tap.take();
      return api(target(), "/chats?limit=1&page=100000");
    }, comparable);
    expect(answer.text).toBe(`{"status":200,"data":[],"meta":{"total":${before}}}`);
  });
});
