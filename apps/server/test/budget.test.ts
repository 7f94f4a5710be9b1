/** A key's budget across two servers that share a database, with a model that the tests control. */
import { afterAll, beforeAll, expect, inject, it, vi } from "vitest";
import { askApi, expectGeneral, listChats, unique, type Target } from "./contract/client.ts";
import { freePort } from "./FreePort.ts";
import { launch, type TestServer } from "./contract/launch.ts";
import { here } from "./cli/here.ts";
import { startTestModel, type TestModel } from "./TestModel.ts";
import { visitorToken } from "./visitorToken.ts";

let model: TestModel;
let servers: ReadonlyArray<TestServer>;
let metricsPort: number;
let database: Readonly<Record<string, string>>;
/** Each of these completes an answer that is waiting for the test. */
let pendingAnswers: Array<() => void> = [];
/** Whether the model breaks off each answer after a delta. */
let isBroken = false;

const usage = { prompt_tokens: 30, completion_tokens: 10, total_tokens: 40 };

beforeAll(async () => {
  model = await startTestModel(({ end, response, say }) => {
    say("Hello");
    if (isBroken) setTimeout(() => response.destroy(), 100);
    else pendingAnswers.push(() => end(usage));
  });
  database = { DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: `budget_${unique()}` };
  const settings = { ...database, ...model.settings };
  metricsPort = await freePort();
  const management = { PARLEY_MANAGEMENT_PORT: String(metricsPort) };
  const first = await launch("postgres", { ...settings, ...management });
  servers = [first, await launch("postgres", settings)];
}, 120_000);
afterAll(async () => {
  await Promise.all(servers?.map(({ stop }) => stop()) ?? []);
  model?.close();
});

const target = (n: number, key: string): Target => ({ ...servers[n % 2]!.target, key });

/** Sends even-numbered asks to the first server and odd-numbered ones to the second. */
const ask = (n: number, json = {}) => {
  const { budgetedKey } = servers[0]!.target;
  // Every third ask is a visitor's.
  const key = n % 3 === 0 ? visitorToken(budgetedKey, `user ${n}`) : budgetedKey;
  const headers = n % 5 === 0 ? { "idempotency-key": unique() } : {};
  return askApi(target(n, key), { json: { query: "q", ...json }, headers });
};

const answerAll = () => {
  for (const answer of pendingAnswers) answer();
  pendingAnswers = [];
};

it("a key's budget is exact across two servers, however asks overlap", async () => {
  /** Sends `count` asks at once; all of them reach the model before any is answered. */
  const askAtOnce = async (count: number) => {
    const overlapping = Array.from({ length: count }, (_, n) => ask(n));
    await vi.waitFor(() => expect(pendingAnswers.length).toBe(count), 20_000);
    answerAll();
    for (const { status, text } of await Promise.all(overlapping)) expect(status, text).toBe(201);
  };
  // Each ask costs 40 of the 1000 tokens.
  for (const count of [16, 8, 1]) await askAtOnce(count);
  const { total } = await listChats(target(0, servers[0]!.target.key), "limit=1");
  expect(total).toBe(25);
  for (let n = 0; n < 8; n++) {
    const refused = await ask(n);
    expectGeneral(refused, 403);
    expect(refused.body.message).toBe("BUDGET_SPENT");
    const midnight = (86_400_000 - (Date.now() % 86_400_000)) / 1000;
    expect(Math.abs(Number(refused.headers["retry-after"]) - midnight)).toBeLessThan(10);
  }
  expect(pendingAnswers.length).toBe(0);
  const { stdout } = await here(["usage", "--chatbot", "Contract bot", "--by", "key", "--json"], {
    PARLEY_STORE: "postgres",
    ...database,
  });
  const usages = JSON.parse(stdout);
  expect(usages).toMatchObject([{ answers: 25, spentToday: 1000, tokensPerDay: 1000 }]);
  const metrics = await (await fetch(`http://127.0.0.1:${metricsPort}/metrics`)).text();
  expect(metrics).toContain(`parley_key_budget_used{key="${usages[0].key}"} 1\n`);
  const { key } = servers[0]!.target;
  // The budget limits neither the chatbot's other keys nor requests for lists.
  const other = askApi(target(1, key), { json: { query: "q" } });
  await vi.waitFor(() => expect(pendingAnswers.length).toBe(1), 20_000);
  answerAll();
  expect((await other).status).toBe(201);
  expect((await listChats(target(0, servers[0]!.target.budgetedKey), "limit=1")).total).toBe(26);
}, 60_000);

it("usage by key shows what a key with a budget has spent today even if it has no answers in that time", async () => {
  const parley = async (line: string) => {
    const command = [...line.split(" "), "--chatbot", "Contract bot"];
    return (await here(command, { PARLEY_STORE: "postgres", ...database })).stdout.trim();
  };
  const key = await parley("key create --name broken --budget 500/day");
  await parley("key create --name unused --budget 500/day");
  isBroken = true;
  expectGeneral(await askApi(target(0, key), { json: { query: "q" } }), 500);
  isBroken = false;
  const id = key.split("_")[1];
  const counts = { answers: 0, attempts: 0, promptTokens: 0, completionTokens: 0 };
  const row = { keyName: "broken", provider: null, model: null, ...counts, tokensPerDay: 500 };
  const rows = JSON.parse(await parley("usage --by key --json"));
  const brokenRows = rows.filter(({ key }: { readonly key: string }) => key === id);
  expect(brokenRows).toEqual([{ key: id, ...row, spentToday: expect.any(Number) }]);
  expect(brokenRows[0].spentToday).toBeGreaterThan(0);
  const recentRows = JSON.parse(await parley("usage --by key --from 0s --json"));
  expect(recentRows).toContainEqual(brokenRows[0]);
  const names = recentRows.map(({ keyName }: { readonly keyName: string }) => keyName);
  expect(names).not.toContain("unused");
}, 60_000);
