import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import type { Answer } from "./Client.ts";
import { askForStream } from "./EventClient.ts";
import type { Call } from "./HeldModel.ts";
import { entryOf } from "./EntryOf.ts";
import { startTogether, type Together } from "./Together.ts";

let together: Together;

const answerNow = (call: Call) => call.end(`Answer to ${call.question}`);

/** What is to be held has "held" in it; everything else is answered after a moment. */
const answer = (call: Call) => {
  if (!call.question.includes("held")) setTimeout(answerNow, 10, call);
};

beforeAll(async () => {
  together = await startTogether(inject("postgresUrl"), 2, answer);
}, 120_000);

afterAll(() => together.stop());

test("who waits at one server is served in order of arrival", async () => {
  const { client, model, servers } = together;
  const chat = await together.newChat();
  const first = client.post(servers[0]!.askUrl, { chat_id: chat, query: "arrival held" });
  const holder = await model.called("arrival held");
  const others: Array<Promise<Answer | null>> = [];
  for (let at = 0; at < 12; at++) {
    others.push(client.post(servers[0]!.askUrl, { chat_id: chat, query: `arrival ${at}` }));
    await sleep(25);
  }
  answerNow(holder);
  const ids = (await Promise.all([first, ...others])).map((got) => entryOf(got).id);
  expect(ids).toEqual(ids.toSorted((a, b) => a - b));
});

test("a cancelled ask gives its turn up at once", async () => {
  const { client, model, servers, site } = together;
  const chat = await together.newChat();
  const cancelled = askForStream(
    servers[0]!.askUrl,
    site.key,
    { chat_id: chat, query: "cancelled held" },
    { "on-disconnect": "cancel" },
  );
  const call = await model.called("cancelled held");
  const next = client.post(servers[1]!.askUrl, { chat_id: chat, query: "after cancelled" });
  // So that it waits.
  await sleep(300);
  expect(model.callsWith("after cancelled")).toHaveLength(0);
  const cut = performance.now();
  cancelled.cut();
  const left = await call.left;
  const after = await model.called("after cancelled");
  entryOf(await next);
  console.log(
    `a cancel reaches the provider after ${(left - cut).toFixed(1)} ms, the next call comes after ${(after.at - cut).toFixed(1)} ms`,
  );
  expect(left - cut).toBeLessThan(1000);
  expect(after.at - cut).toBeLessThan(900);
  expect(await together.history(servers[0]!, chat)).toHaveLength(2);
});

test("who waited and left holds nobody up", async () => {
  const { client, model, servers, site } = together;
  const chat = await together.newChat();
  const first = client.post(servers[0]!.askUrl, { chat_id: chat, query: "gone held" });
  const holder = await model.called("gone held");
  const gone = askForStream(
    servers[1]!.askUrl,
    site.key,
    { chat_id: chat, query: "gone waiting" },
    { "on-disconnect": "cancel" },
  );
  await sleep(300);
  gone.cut();
  await sleep(300);
  const second = client.post(servers[0]!.askUrl, { chat_id: chat, query: "gone second" });
  await sleep(300);
  answerNow(holder);
  const freed = performance.now();
  entryOf(await first);
  entryOf(await second);
  const [call] = model.callsWith("gone second");
  console.log(`after one that left, the next call comes after ${(call!.at - freed).toFixed(1)} ms`);
  expect(model.callsWith("gone waiting")).toHaveLength(0);
  // Less than a poll: it gave up its place.
  expect(call!.at - freed).toBeLessThan(900);
});

/** How long a turn that ends at one server takes to begin at the other, in milliseconds. */
const handOver = async (name: string): Promise<number> => {
  const { client, model, servers } = together;
  const chat = await together.newChat();
  const ask = (at: number) =>
    client.post(servers[at]!.askUrl, { chat_id: chat, query: `${name} held ${at}` });
  const first = ask(0);
  const holder = await model.called(`${name} held 0`);
  const second = ask(1);
  // Not a whole number of polls.
  await sleep(450);
  answerNow(holder);
  const freed = performance.now();
  const next = await model.called(`${name} held 1`);
  answerNow(next);
  for (const got of [await first, await second]) entryOf(got);
  return next.at - freed;
};

test("a server whose hints are lost waits a poll longer, and listens again", async () => {
  const { database } = together;
  const before = await handOver("before");
  const ended = await database.rows(
    `select pg_terminate_backend(pid) from pg_stat_activity
    where datname = current_database() and application_name = 'parley' and query ilike 'listen%'`,
  );
  expect(ended).toHaveLength(2);
  const without = await handOver("without");
  let after = Infinity;
  for (let n = 0; n < 8 && after > 200; n++) after = await handOver(`after ${n}`);
  console.log(
    `hand-over with hints ${before.toFixed(0)} ms, without ${without.toFixed(0)} ms, with them again ${after.toFixed(0)} ms`,
  );
  expect(before).toBeLessThan(400);
  expect(without).toBeLessThan(3000);
  expect(after).toBeLessThan(200);
}, 60_000);
