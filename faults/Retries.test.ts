import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { retries } from "./Amount.ts";
import { makeClient } from "./Client.ts";
import { startDeafProxy } from "./DeafProxy.ts";
import { entryOf } from "./EntryOf.ts";
import { startTogether, type Together } from "./Together.ts";
import type { Call } from "./HeldModel.ts";

/** A turn that is not renewed lasts so long, in milliseconds. */
const lease = 10_000;

let together: Together;

/** What is to be held has "held" in it; everything else is answered after a moment. */
const answer = (call: Call) => {
  if (!call.question.includes("held")) setTimeout(() => call.end(`Answer to ${call.question}`), 30);
};

beforeAll(async () => {
  together = await startTogether(inject("postgresUrl"), 2, answer);
}, 120_000);

afterAll(() => together.stop());

/** The stored entries with this question, and all chats that have none. */
const stored = async (question: string) => {
  const entries = await together.database.rows<{ readonly id: bigint; readonly chat_id: bigint }>(
    "select id, chat_id from entry where question = $1",
    [question],
  );
  const [{ n } = { n: -1n }] = await together.database.rows<{ readonly n: bigint }>(
    `select count(*) as n from chat
    where entries <> (select count(*) from entry where (chatbot_id, chat_id) = (chat.chatbot_id, chat.id))
      or entries = 0`,
  );
  expect(Number(n), "chats whose count is wrong").toBe(0);
  return entries.map(({ chat_id, id }) => ({ id: Number(id), chat_id: Number(chat_id) }));
};

describe.each(["an existing chat", "a new chat"])("one key, used again in %s", (where) => {
  const word = where.replaceAll(" ", "-");
  const chatFor = () => (where === "a new chat" ? null : together.newChat());

  test(
    `${retries} times in parallel: one entry, one call of the model, the same bytes`,
    { timeout: 60_000 },
    async () => {
      const { client, model, servers, site } = together;
      const chat = await chatFor();
      const clients = servers.map(() => makeClient(site.key));
      const question = `${word} parallel`;
      const began = performance.now();
      const answers = await Promise.all(
        Array.from({ length: retries }, (_, at) =>
          clients[at % 2]!.post(
            servers[at % 2]!.askUrl,
            { chat_id: chat, query: question },
            `${word}-parallel`,
          ),
        ),
      );
      const took = performance.now() - began;
      for (const each of clients) each.close();
      const entry = entryOf(answers[0]!);
      expect(new Set(answers.map((got) => got?.text)).size).toBe(1);
      expect(answers.filter((got) => !got?.replayed)).toHaveLength(1);
      expect(model.callsWith(question)).toHaveLength(1);
      expect(await stored(question)).toEqual([{ id: entry.id, chat_id: entry.chat_id }]);
      const later = await client.post(
        servers[1]!.askUrl,
        { query: question, ...(chat !== null && { chat_id: chat }) },
        `${word}-parallel`,
      );
      expect(later).toEqual({ ...answers[0], replayed: true });
      console.log(`${retries} requests with one key in ${where}: ${took.toFixed(0)} ms`);
    },
  );

  test("a failure is not kept: the next one runs, wherever it is", async () => {
    const { client, model, servers } = together;
    const chat = await chatFor();
    const body = { chat_id: chat, query: `${word} fails held` };
    const key = `${word}-fails`;
    const first = client.post(servers[0]!.askUrl, body, key);
    const others = [0, 1, 1].map((at) => client.post(servers[at]!.askUrl, body, key));
    const call = await model.called(body.query);
    await sleep(300);
    // Nothing that a retry of the model could help.
    call.response.writeHead(400).end('{"error":{"message":"no"}}');
    while (model.callsWith(body.query).length < 2) await sleep(5);
    model.callsWith(body.query)[1]!.end("At last");
    const answers = await Promise.all([first, ...others]);
    const good = answers.filter((got) => got?.status === 201);
    expect(good.length).toBeGreaterThan(0);
    expect(new Set(good.map((got) => got!.text)).size).toBe(1);
    for (const got of answers) expect([201, 500], got?.text).toContain(got?.status);
    expect(model.callsWith(body.query)).toHaveLength(2);
    expect(await stored(body.query)).toHaveLength(1);
  });
});

describe("one key, used again at another server after kill -9", () => {
  test(
    "committed: the same entry; not committed: the model runs again, one entry",
    { timeout: 120_000 },
    async () => {
      const { client, database, model, servers } = together;
      const [victim, other] = servers as [(typeof servers)[0], (typeof servers)[0]];
      const asked = await Promise.all(
        ["committed", "lost held"].flatMap((fate) =>
          ["chat", "new"].map(async (where) => ({
            fate,
            body: {
              chat_id: where === "new" ? null : await together.newChat(),
              query: `kill ${fate} ${where}`,
            },
            key: `kill-${fate}-${where}`,
            proxy: await startDeafProxy(victim.askUrl),
          })),
        ),
      );
      const unheard = asked.map(({ body, key, proxy }) => client.post(proxy.url, body, key));
      await Promise.all(
        asked.map(async ({ body, fate, proxy }) => {
          if (fate === "committed") return proxy.answered;
          const call = await model.called(body.query);
          call.say("Half an ans");
        }),
      );
      const killed = performance.now();
      await victim.kill();
      for (const { proxy } of asked) proxy.close();
      expect(await Promise.all(unheard)).toEqual(asked.map(() => null));

      await Promise.all(
        asked.map(async ({ body, fate, key }) => {
          const rows = await stored(body.query);
          const again = client.post(other.askUrl, body, key);
          if (fate === "committed") {
            const entry = entryOf(await again);
            expect((await again)!.replayed).toBe(true);
            expect(performance.now() - killed).toBeLessThan(3000);
            expect(rows).toEqual([{ id: entry.id, chat_id: entry.chat_id }]);
            expect(model.callsWith(body.query)).toHaveLength(1);
          } else {
            expect(rows).toEqual([]);
            while (model.callsWith(body.query).length < 2) await sleep(10);
            const waited = performance.now() - killed;
            console.log(`${body.query}: runs again ${waited.toFixed(0)} ms after kill -9`);
            expect(waited).toBeLessThan(lease + 2500);
            model.callsWith(body.query)[1]!.end("A whole answer");
            const entry = entryOf(await again);
            expect(entry.answer).toBe("A whole answer");
            expect((await again)!.replayed).toBe(false);
            expect(await stored(body.query)).toEqual([{ id: entry.id, chat_id: entry.chat_id }]);
            expect(model.callsWith(body.query)).toHaveLength(2);
          }
          // The chat goes on.
          if (body.chat_id !== null) {
            const next = {
              chat_id: body.chat_id,
              query: `after ${body.query.replace("held", "")}`,
            };
            entryOf(await client.post(other.askUrl, next));
            const history = await together.history(other, body.chat_id);
            expect(history.map(({ question }) => question)).toEqual(["", body.query, next.query]);
          }
        }),
      );
      const [open] = await database.rows<{ readonly n: bigint }>(
        "select count(*) as n from idempotency_key where entry_id is null",
      );
      expect(Number(open!.n), "keys that are left open").toBe(0);
    },
  );
});
