/**
 * The server with language models that all fail and then recover, and its limits on asks.
 */
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { askApi, createChat, listChats } from "../apps/server/test/contract/client.ts";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";

interface Provider {
  readonly url: string;
  /** The questions that the provider received, in order. */
  readonly questions: Array<string>;
  answer: (text: string, response: ServerResponse, request: IncomingMessage) => void;
  readonly server: Server;
}

const startProvider = async (answer: Provider["answer"]): Promise<Provider> => {
  const questions: Array<string> = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const { content } = JSON.parse(body).messages.at(-1);
    const text = typeof content === "string" ? content : content[0].text;
    questions.push(text);
    provider.answer(text, response, request);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const provider: Provider = { url: `http://127.0.0.1:${port}/v1`, questions, answer, server };
  return provider;
};

const says =
  (answer: string): Provider["answer"] =>
  (_, response) => {
    const chunk = (choice: object) =>
      `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, ...choice }] })}\n\n`;
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk({ delta: { role: "assistant", content: answer }, finish_reason: null }));
    response.end(`${chunk({ delta: {}, finish_reason: "stop" })}data: [DONE]\n\n`);
  };
const fails: Provider["answer"] = (_, response) => response.writeHead(503).end("{}");
const resets: Provider["answer"] = (_, response) => response.socket!.destroy();
const silent: Provider["answer"] = () => {};

const settingsOf = (providers: ReadonlyArray<readonly [kind: string, url: string]>) =>
  Object.fromEntries(
    providers.flatMap(([kind, url]) => [
      [`PARLEY_LLM_${kind}BASE_URL`, url],
      [`PARLEY_LLM_${kind}MODEL`, "m"],
    ]),
  );

const providers: Array<Provider> = [];
const start = async (answer: Provider["answer"]) => {
  const provider = await startProvider(answer);
  providers.push(provider);
  return provider;
};
afterAll(() => {
  for (const { server } of providers) {
    server.close();
    server.closeAllConnections();
  }
});

describe("language models that all fail", () => {
  let testServer: TestServer;
  let dead: ReadonlyArray<Provider>;
  beforeAll(async () => {
    dead = [await start(fails), await start(resets)];
    testServer = await launch(
      "memory",
      settingsOf([
        ["", dead[0]!.url],
        ["FALLBACK_", dead[1]!.url],
      ]),
    );
  }, 60_000);
  afterAll(() => testServer?.stop());

  it("if all models fail, asks fail without waiting for a model after ten failures, and succeed soon after one model recovers", async () => {
    const { target } = testServer;
    const firstAsks = Array.from({ length: 10 }, () =>
      askApi(target, { json: { query: "Are you there?" } }),
    );
    for (const { status } of await Promise.all(firstAsks)) expect(status).toBe(500);
    const before = dead.map(({ questions }) => questions.length);
    for (let n = 0; n < 200; n++) {
      const { body, status } = await askApi(target, { json: { query: "Are you there?" } });
      expect([status, body]).toEqual([500, expect.objectContaining({ code: 500002 })]);
      expect((await listChats(target, "")).total).toBe(0);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
    for (const [n, { questions }] of dead.entries()) {
      // Only the asks that try the model again, one at a time, reach it and wait for it.
      expect(questions.length - before[n]!).toBeLessThan(10);
    }

    dead[1]!.answer = says("Here I am.");
    const back = performance.now();
    let answer: unknown;
    while (answer === undefined && performance.now() - back < 40_000) {
      await new Promise((resolve) => setTimeout(resolve, 200));
      answer = (await askApi(target, { json: { query: "Are you there?" } })).body?.data?.answer;
    }
    expect(answer).toBe("Here I am.");
  }, 120_000);
});

describe("the limits on asks", () => {
  let testServer: TestServer;
  let provider: Provider;
  beforeAll(async () => {
    provider = await start(silent);
    testServer = await launch("memory", {
      ...settingsOf([["", provider.url]]),
      PARLEY_ASK_DEADLINE: "2 seconds",
      PARLEY_ASKS_AT_ONCE: "5",
    });
  }, 60_000);
  afterAll(() => testServer?.stop());

  it("asks are limited as the settings say, and an ask waits for its turn for up to twice the deadline", async () => {
    const { target } = testServer;
    const { id } = await createChat(target);
    const ask = async (chat_id?: number) => {
      const begun = performance.now();
      const { body } = await askApi(target, { json: { query: "Are you there?", chat_id } });
      return { code: body.code, millis: performance.now() - begun };
    };
    /** Sends an ask, and resolves when the ask is in progress or waiting for its turn. */
    const begin = async (chat_id?: number) => {
      const outcome = ask(chat_id);
      await new Promise((resolve) => setTimeout(resolve, 200));
      return { outcome };
    };
    const first = await begin(id);
    const second = await begin(id);
    await begin(id);
    const fourth = await begin(id);
    const elsewhere = await begin();
    expect((await ask()).code).toBe(500004);
    for (const [{ outcome }, code, least] of [
      [first, 500002, 2000],
      [second, 500002, 3700],
      [fourth, 500004, 4000],
      [elsewhere, 500002, 2000],
    ] as const) {
      const answer = await outcome;
      expect(answer.code).toBe(code);
      expect(answer.millis).toBeGreaterThan(least - 10);
      expect(answer.millis).toBeLessThan(15_000);
    }
  }, 60_000);
});
