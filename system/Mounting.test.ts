/**
 * Runs one suite against the handler in every server in which the documentation mounts it. The frameworks and runtimes
 * are installed in `mounts`, which is not part of the workspace. The programs there are bundled with Parley, as an
 * application would be.
 */
import { spawnSync } from "node:child_process";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { Agent, createServer, request, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { rolldown } from "rolldown";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { start } from "../apps/server/test/cli/run.ts";
import { makeKeys } from "../test/keys.ts";
import { requirePackages } from "./programs/requirePackages.ts";

const mounts = requirePackages("system/mounts");
const bin = (name: string) => join(mounts, "node_modules/.bin", name);

type Runtime = readonly [string, ...Array<string>];
const node24: Runtime = [process.execPath];
const node20: Runtime = [bin("node")];
const bun: Runtime = [bin("bun")];
const deno: Runtime = [bin("deno"), "run", "--quiet", "--allow-all"];

const servers: ReadonlyArray<readonly [string, string, Runtime]> = [
  ["node:http", "node-http", node24],
  ["node:http on Node 20", "node-http", node20],
  ["Express 5 after its body parser", "express", node24],
  ["Express 5 on Node 20", "express", node20],
  ["Express 5 on Bun", "express", bun],
  ["Express 5 on Deno", "express", deno],
  ["an Express 5 router", "express-router", node24],
  ["Express 4", "express-4", node24],
  ["Fastify 5", "fastify", node24],
  ["Fastify 5 without its body parsers", "fastify-raw", node24],
  ["Koa in a mount, after its body parser", "koa", node24],
  ["Hono", "hono", node24],
  ["Next.js", "next", node24],
  ["Bun", "bun", bun],
  ["Deno", "deno", deno],
];

const [key] = (await makeKeys(1)) as [string];

/** The pending requests for the second halves of answers, by question. The programs wait for the responses. */
const halves = new Map<string, ServerResponse>();
const cancelled = new Set<string>();
const gate = createServer(({ url }, response) => {
  const question = decodeURIComponent(url!.slice(1));
  if (question.startsWith("quick")) return void response.end("two");
  halves.set(question, response);
  response.once("close", () => {
    if (!response.writableEnded) cancelled.add(question);
  });
});

beforeAll(async () => {
  await once(gate.listen(0, "127.0.0.1"), "listening");
  const { devDependencies } = JSON.parse(readFileSync(join(mounts, "package.json"), "utf8"));
  const names = new Set(servers.map(([, name]) => name));
  const build = await rolldown({
    input: [...names].map((name) => join(mounts, `${name}.ts`)),
    platform: "node",
    external: [...Object.keys(devDependencies), "hono/compress"],
  });
  await build.write({ dir: join(mounts, "dist"), format: "es", entryFileNames: "[name].mjs" });
}, 60_000);
afterAll(() => gate.close());

it("the programs in system/mounts compile", () => {
  const compiler = join(import.meta.dirname, "../node_modules/.bin/tsc");
  const { stdout } = spawnSync(compiler, ["-p", mounts], { encoding: "utf8" });
  expect(stdout).toBe("");
});

const json = { "x-api-key": key, "content-type": "application/json" };

describe.each(servers)("%s", (title, name, runtime) => {
  let server: ReturnType<typeof start>;
  let origin: string;
  beforeAll(async () => {
    const { port } = gate.address() as AddressInfo;
    const settings = { GATE: `http://127.0.0.1:${port}`, KEY: key };
    server = start([join(mounts, `dist/${name}.mjs`)], settings, runtime, { cwd: mounts });
    [origin] = (await server.untilPrinted(/^http:\S+$/m)) as unknown as [string];
  });
  afterAll(async () => {
    server.child.kill("SIGKILL");
    await server.exit;
  });

  const send = async (path: string, body?: unknown, headers: object = {}, method?: string) => {
    const response = await fetch(origin + path, {
      method: method ?? (body === undefined ? "GET" : "POST"),
      headers: { "x-api-key": key, ...(body !== undefined && json), ...headers },
      ...(body !== undefined && { body: JSON.stringify(body) }),
    });
    const text = await response.text();
    return { status: response.status, body: text === "" ? null : JSON.parse(text) };
  };

  it("the handler sees methods and paths as clients send them", async () => {
    expect(await send("/support/chatbot/details")).toMatchObject({
      status: 200,
      body: { data: { chatBotName: "Helpdesk" } },
    });
    expect((await send("/support/chatbot/chats?limit=1&orderBy=id&orderBy=name")).status).toBe(200);
    expect(await send("/support/chatbot/nowhere?a=b")).toMatchObject({
      status: 404,
      body: { method: "GET", path: "/support/chatbot/nowhere" },
    });
    expect(await send("/support/chatbot/chats", undefined, {}, "DELETE")).toMatchObject({
      status: 404,
      body: { method: "DELETE", path: "/support/chatbot/chats" },
    });
    expect((await send("/support/chatbot/details", undefined, { "x-api-key": "no" })).status).toBe(
      401,
    );
  });

  it("the handler accepts valid bodies, and rejects invalid ones as the contract says", async () => {
    const name = "Größe 😀 \u2028";
    expect(await send("/support/chatbot/chats", { name })).toMatchObject({
      status: 201,
      body: { data: { name } },
    });
    expect(await send("/support/chatbot/chats", {})).toMatchObject({ status: 201 });
    const refusalOf = async (body: unknown) => {
      const { body: answer, status } = await send("/support/ask", body);
      return [status, answer.errors?.map(({ path }: { path: unknown }) => path) ?? answer.message];
    };
    expect(await refusalOf({ chat_id: "1" })).toEqual([422, [["chat_id"], ["query"]]]);
    expect(await refusalOf([])).toEqual([422, [[]]]);
    expect(await refusalOf({ query: "x".repeat(70_000) })).toEqual([400, "BODY_TOO_LARGE"]);
    expect(await send("/support/ask", { query: "quick" })).toMatchObject({
      status: 201,
      body: { data: { answer: "one two" } },
    });
  });

  it("the handler renames and deletes chats, and stops asks", async () => {
    const { data: chat } = (await send("/support/chatbot/chats", {})).body;
    const path = `/support/chatbot/chats/${chat.id}`;
    const renamed = { status: 200, body: { data: { ...chat, name: "new" } } };
    expect(await send(path, { name: "new" }, {}, "PATCH")).toMatchObject(renamed);
    expect(await send(path, undefined, {}, "DELETE")).toMatchObject(renamed);
    const headers = { "idempotency-key": `stop in ${title}` };
    const { data: entry } = (await send("/support/ask", { query: "quick" }, headers)).body;
    expect(await send("/support/ask", undefined, headers, "DELETE")).toMatchObject({
      status: 200,
      body: { data: { stopped: false, entry } },
    });
  });

  it("the handler answers requests whose bodies it does not read to the end", async () => {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    const statuses = [];
    for (const path of ["/support/chatbot/chats", "/support/ask"]) {
      const outgoing = request(origin + path, { method: "POST", headers: json, agent });
      // Chunked, so that the server does not know the length beforehand.
      for (let n = 0; n < 2; n++) outgoing.write(JSON.stringify("x".repeat(45_000)));
      outgoing.end();
      const [response] = await once(outgoing, "response");
      response.resume();
      await once(response, "end");
      statuses.push(response.statusCode);
    }
    agent.destroy();
    expect(statuses).toEqual([400, 400]);
  });

  it("the handler sends each delta immediately, even to clients that accept compressed responses", async () => {
    const question = `delta in ${title}`;
    const response = await fetch(`${origin}/support/ask`, {
      method: "POST",
      headers: { ...json, accept: "text/event-stream", "accept-encoding": "gzip, br" },
      body: JSON.stringify({ query: question }),
    });
    expect(response.headers.get("cache-control")).toBe("no-store, no-transform");
    expect(response.headers.get("content-encoding")).toBeNull();
    const pieces = response.body!.pipeThrough(new TextDecoderStream()).getReader();
    expect((await pieces.read()).value).toContain('data: {"text":"one "}\n\n');
    await expect.poll(() => halves.has(question)).toBe(true);
    halves.get(question)!.end("two");
    let rest = "";
    for (let piece; !(piece = await pieces.read()).done;) rest += piece.value;
    expect(rest).toMatch(/"text":"two"[^]*event: entry\n.*\ndata: .*"one two"/);
  });

  /** Sends an ask, and disconnects when the answer has begun. */
  const leave = async (question: string, headers: object) => {
    const outgoing = request(`${origin}/support/ask`, {
      method: "POST",
      headers: { ...json, ...headers },
    });
    outgoing.once("error", () => {});
    outgoing.once("response", (response) => response.on("error", () => {}));
    outgoing.end(JSON.stringify({ query: question }));
    await expect.poll(() => halves.has(question), { timeout: 10_000 }).toBe(true);
    outgoing.destroy();
  };

  it("disconnecting cancels an ask, streamed or not, if the client has opted in", async () => {
    const cancel = { "on-disconnect": "cancel" };
    for (const accept of ["text/event-stream", "application/json"]) {
      const question = `cancel ${accept} in ${title}`;
      await leave(question, { ...cancel, accept });
      await expect.poll(() => cancelled.has(question), { timeout: 5000 }).toBe(true);
    }
    const finished = `finish in ${title}`;
    await leave(finished, { accept: "text/event-stream" });
    const last = `last in ${title}`;
    await leave(last, { ...cancel, accept: "text/event-stream" });
    await expect.poll(() => cancelled.has(last), { timeout: 5000 }).toBe(true);
    expect(cancelled.has(finished)).toBe(false);
    halves.get(finished)!.end("two");
  });

  it("the handler survives 48 clients that disconnect mid-stream, and prints nothing", async () => {
    const questions = Array.from({ length: 48 }, (_, n) => `killed ${n} in ${title}`);
    const headers = { "on-disconnect": "cancel", accept: "text/event-stream" };
    await Promise.all(questions.map((question) => leave(question, headers)));
    await expect
      .poll(() => questions.filter((question) => cancelled.has(question)).length, {
        timeout: 10_000,
      })
      .toBe(48);
    expect((await send("/support/chatbot/details")).status).toBe(200);
    const { stderr, stdout } = server.output;
    // A notice that Deno prints for all of its servers.
    expect(stderr.replace(/^Deno\.serve: request\.signal .*\n/m, "")).toBe("");
    expect(stdout).toBe(`${origin}\n`);
  });
});
