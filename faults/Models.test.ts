/**
 * Two independent model servers of which three calls in ten fail, at random: errors, torn connections,
 * garbage, and rate limits with a Retry-After.
 */
import { LLMock } from "../packages/llm/node_modules/@copilotkit/aimock/dist/index.js";
import { execFileSync } from "node:child_process";
import { afterAll, beforeAll, expect, inject, test } from "vitest";
import { modelAsks } from "./Amount.ts";
import { makeClient, type Client } from "./Client.ts";
import { makeDatabase, type Database } from "./Database.ts";
import { startServer, type Server } from "./Server.ts";
import { main, makeSite, type Site } from "./Site.ts";

/** Of those that are left by the one before: three in ten together. */
const rate = 1 - 0.7 ** (1 / 4);
const chaos = { dropRate: rate, malformedRate: rate, rateLimitRate: rate, disconnectRate: rate };

const deadline = 30_000;

interface Cost {
  readonly provider: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

let site: Site;
let database: Database;
let server: Server;
let client: Client;
const mocks: Array<LLMock> = [];
/** What the mock servers counted for each answer that they gave, by its text. */
const counted = new Map<string, Cost>();

const startMock = async (): Promise<LLMock> => {
  const mock = await LLMock.create({ port: 0, logLevel: "silent", chaos, journalMaxEntries: 0 });
  const provider = new URL(mock.baseUrl).host;
  mock.onMessage(/.*/, () => {
    const n = counted.size + 1;
    const content = `Answer ${n}`;
    counted.set(content, { provider, promptTokens: 1000 + n, completionTokens: n });
    return { content, usage: { prompt_tokens: 1000 + n, completion_tokens: n } };
  });
  mocks.push(mock);
  return mock;
};

beforeAll(async () => {
  site = await makeSite();
  database = await makeDatabase(inject("postgresUrl"));
  const [first, second] = [await startMock(), await startMock()];
  server = await startServer(site, {
    ...database.environment,
    PARLEY_LLM_BASE_URL: `${first.baseUrl}/v1`,
    PARLEY_LLM_MODEL: "m",
    PARLEY_LLM_FALLBACK_BASE_URL: `${second.baseUrl}/v1`,
    PARLEY_LLM_FALLBACK_MODEL: "m",
  });
  client = makeClient(site.key);
});
afterAll(async () => {
  client?.close();
  await server?.kill();
  for (const mock of mocks) await mock.stop();
  await database.remove();
  await site.remove();
});

/** Runs `one` so often, some at once; gives how many succeeded and the longest in milliseconds. */
const load = async (one: (n: number) => Promise<boolean>) => {
  let next = 0;
  let succeeded = 0;
  let longest = 0;
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      while (next < modelAsks) {
        const began = performance.now();
        if (await one(next++)) succeeded++;
        longest = Math.max(longest, performance.now() - began);
      }
    }),
  );
  return { succeeded, longest };
};

const expectEnough = (what: string, { longest, succeeded }: Awaited<ReturnType<typeof load>>) => {
  console.log(`${succeeded} of ${modelAsks} ${what}, longest ${longest.toFixed(0)} ms`);
  expect(succeeded).toBeGreaterThanOrEqual(Math.floor(modelAsks * 0.995));
  expect(longest).toBeLessThan(deadline + 250);
};

test("plain asks succeed all the same", { timeout: 600_000 }, async () => {
  const load1 = await load(async (n) => {
    const answer = await client.post(server.askUrl, { query: `plain ${n}` });
    return answer?.status === 201;
  });
  expectEnough("plain asks succeeded", load1);
});

test("streams succeed all the same", { timeout: 600_000 }, async () => {
  expectEnough(
    "streams succeeded",
    await load(async (n) => {
      const response = await fetch(server.askUrl, {
        method: "POST",
        headers: {
          "x-api-key": site.key,
          "content-type": "application/json",
          accept: "text/event-stream",
        },
        body: JSON.stringify({ query: `stream ${n}` }),
      });
      return (await response.text()).includes("event: entry");
    }),
  );
});

test("`parley usage` tells what the model servers counted for the answers that are stored", async () => {
  const rows = await database.rows<{ readonly question: string; readonly answer: string }>(
    "select question, answer from entry where position > 0 and question <> ''",
  );
  expect(rows.length).toBeGreaterThan(modelAsks);
  const failed = mocks
    .flatMap((mock) => mock.getRequests())
    .filter(({ response }) => response.chaosAction !== undefined);
  expect(failed.length).toBeGreaterThan(modelAsks / 5);

  const stored = new Set(rows.map(({ question }) => question));
  const expected = mocks.map((mock) => {
    const provider = new URL(mock.baseUrl).host;
    const costs = rows
      .map(({ answer }) => counted.get(answer)!)
      .filter((cost) => cost.provider === provider);
    const sum = (field: "promptTokens" | "completionTokens") =>
      costs.reduce((total, cost) => total + cost[field], 0);
    return {
      provider: `${provider}.chat`,
      model: "m",
      answers: costs.length,
      promptTokens: sum("promptTokens"),
      completionTokens: sum("completionTokens"),
    };
  });
  const calls = mocks
    .flatMap((mock) => mock.getRequests())
    .filter(({ body }) => {
      const { content } = (
        body as { readonly messages: ReadonlyArray<{ readonly content: any }> }
      ).messages.at(-1)!;
      return stored.has(typeof content === "string" ? content : content[0].text);
    });

  const told = JSON.parse(
    execFileSync(
      process.execPath,
      [main, "usage", "--chatbot", "Faults bot", "--since", "2020-01-01", "--json"],
      {
        cwd: site.directory,
        env: { ...site.environment, ...database.environment },
        encoding: "utf8",
      },
    ),
  ) as ReadonlyArray<Record<string, number>>;
  const sums = told.map(({ attempts: _, ...sum }) => sum);
  expect(sums).toHaveLength(2);
  expect(sums).toEqual(expect.arrayContaining(expected));
  // Failed calls count for the answer that came at last.
  expect(told.reduce((total, { attempts }) => total + attempts!, 0)).toBe(calls.length);
});
