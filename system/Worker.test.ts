/**
 * Runs `examples/worker` in workerd: two chatbots side by side, the contract's suites, and kills under load.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it, vi } from "vitest";
import { start } from "../apps/server/test/cli/run.ts";
import { visitorToken } from "../apps/server/test/visitorToken.ts";
import { runtimes } from "./runtimes/Workerd.ts";

const kills = 20;
const storage = mkdtempSync(join(tmpdir(), "parley-worker-"));

/** Starts the Worker in a process group of its own, over the same storage each time. */
const startWorker = async () => {
  const program = [process.execPath, join(runtimes, "serve.ts")] as const;
  const { child, exit, untilPrinted } = start([storage], {}, program, { detached: true });
  const [origin] = await untilPrinted(/^http:\S+$/m);
  const kill = async () => {
    process.kill(-child.pid!, "SIGKILL");
    await exit;
  };
  return { origin, kill };
};

let worker: Awaited<ReturnType<typeof startWorker>>;
beforeAll(async () => {
  worker = await startWorker();
}, 60_000);
afterAll(async () => {
  await worker.kill();
  rmSync(storage, { recursive: true });
});

const post = (path: string, body: object, headers: object) =>
  fetch(worker.origin + path, {
    method: "POST",
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  });
const createKey = async (key: object): Promise<string> => {
  const response = await post("/keys", key, { authorization: "Bearer admin" });
  return ((await response.json()) as { key: string }).key;
};
const read = async (path: string, key: string): Promise<any> => {
  const response = await fetch(worker.origin + path, { headers: { "x-api-key": key } });
  return response.json();
};

it("each key and each visitor reaches its own chatbot, and no other key reaches any", async () => {
  const scopes = ["read", "write", "ask"];
  const [one, another, two] = [
    await createKey({ chatbot: "One", scopes, visitors: true }),
    await createKey({ chatbot: "One", scopes }),
    await createKey({ chatbot: "Two", scopes }),
  ];
  expect((await post("/keys", { chatbot: "One" }, { authorization: "Bearer guess" })).status).toBe(
    401,
  );
  await post("/ask", { query: "Who?" }, { "x-api-key": one });
  const token = visitorToken(one, "visitor-1");
  await post("/api/chats", { name: "Visit" }, { "x-api-key": token });
  const names = async (key: string) =>
    (await read("/api/chats", key)).data.map(({ name }: { name: string }) => name);
  expect(await names(another)).toEqual(["Visit", null]);
  expect(await names(token)).toEqual(["Visit"]);
  expect(await names(two)).toEqual([]);
  expect((await read("/api/details", two)).data.chatBotName).toBe("Two");
  const stranger = two.replace(/^prl_./, (start) => `prl_${start.endsWith("A") ? "B" : "A"}`);
  expect(await read("/api/details", stranger)).toMatchObject({ code: 401002 });
});

it("a stream that broke off resumes where it was", async () => {
  const key = await createKey({ chatbot: "One", scopes: ["ask"] });
  const headers = { "x-api-key": key, accept: "text/event-stream", "idempotency-key": "stream-1" };
  const ask = (more = {}) =>
    post("/ask", { query: "Again?" }, { ...headers, ...more }).then((response) => response.text());
  const text = await ask();
  expect(text).toContain("You asked: ");
  const [, id] = /^id: (.*)$/m.exec(text)!;
  const rest = await ask({ "last-event-id": id });
  expect(rest).toContain("event: entry");
  expect(rest).not.toContain("event: delta");
});

it("the Worker passes the contract's suites", async () => {
  const scopes = ["read", "write", "ask", "delete", "post"];
  const key = await createKey({ chatbot: "Contract", scopes, visitors: true });
  const otherKey = await createKey({ chatbot: "Another", scopes });
  const folder = join(import.meta.dirname, "../apps/server/test/contract");
  const settings = {
    NO_COLOR: "1",
    PARLEY_URL: worker.origin,
    PARLEY_KEY: key,
    PARLEY_OTHER_KEY: otherKey,
  };
  const vitest = join(import.meta.dirname, "../node_modules/.bin/vitest");
  const args = ["run", "--config", join(folder, "vitest.config.ts")];
  const { exit, output } = start(args, settings, [vitest]);
  expect(await exit, output.stdout + output.stderr).toBe(0);
  const [, count] = /Tests +(\d+) passed/.exec(output.stdout)!;
  expect(Number(count)).toBeGreaterThan(80);
}, 120_000);

it(`${kills} kills under load lose no entry that was acknowledged, and double none`, async () => {
  const key = await createKey({ chatbot: "Load", scopes: ["read", "write", "ask"] });
  const stored = new Map<string, number>();
  let isOver = false;
  const load = async (chat: number) => {
    for (let n = 0; !isOver; n++) {
      const query = `${chat}-${n}`;
      // Repeated until it is acknowledged, also by the next process.
      while (!stored.has(query)) {
        const headers = { "x-api-key": key, "idempotency-key": query };
        const response = await post("/ask", { query, chat_id: chat }, headers).catch(() => null);
        const body: any = await response?.json().catch(() => null);
        if (body?.status === 201) stored.set(query, body.data.id);
        else await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  };
  const chats = [];
  for (let n = 0; n < 4; n++) {
    const response = await post("/api/chats", {}, { "x-api-key": key });
    chats.push(((await response.json()) as any).data.id);
  }
  const loads = chats.map(load);
  for (let n = 0; n < kills; n++) {
    const before = stored.size;
    await vi.waitFor(() => expect(stored.size).toBeGreaterThan(before + 20), { timeout: 30_000 });
    await worker.kill();
    worker = await startWorker();
  }
  isOver = true;
  await Promise.all(loads);
  const rows = [];
  for (const chat of chats)
    for (let page = 1, total = 1; (page - 1) * 100 < total; page++) {
      const { data, meta } = await read(`/api/chats/${chat}/history?limit=100&page=${page}`, key);
      rows.push(...data.filter(({ question }: { question: string }) => question !== ""));
      total = meta.total;
    }
  console.log(`${stored.size} entries, ${kills} kills`);
  expect(rows.length).toBe(stored.size);
  expect(new Map(rows.map(({ id, question }) => [question, id]))).toEqual(stored);
}, 600_000);
