import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { here, oneLineAndHint, type Finding } from "./here.ts";

let directory: string;
let endpoint: Server;
/** The status of the endpoint's responses. */
let status = 200;
const received: Array<string> = [];

const portOf = (server: Server) => (server.address() as AddressInfo).port;

const listen = async (server: Server) => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
};

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-doctor-test-"));
  endpoint = await listen(
    createServer(async (request, response) => {
      let body = "";
      for await (const part of request) body += part;
      received.push(`${request.url} ${request.headers.authorization} ${body}`);
      if (status !== 200) {
        response.writeHead(status, { "content-type": "application/json" });
        response.end(`{"error":{"message":"about the key ${request.headers.authorization}"}}`);
      } else if (request.url!.endsWith("/moderations")) {
        response.writeHead(200, { "content-type": "application/json" });
        response.end('{"results":[{"flagged":false,"categories":{}}]}');
      } else {
        response.writeHead(200, { "content-type": "text/event-stream" });
        const choice = { index: 0, delta: { content: "pong" }, finish_reason: "length" };
        response.end(`data: ${JSON.stringify({ choices: [choice] })}\n\ndata: [DONE]\n\n`);
      }
    }),
  );
  expect((await here(["migrate"], database())).code).toBe(0);
  expect(
    (await here(["chatbot", "create", "--workspace", "W", "--name", "N"], database())).code,
  ).toBe(0);
});
afterAll(async () => {
  endpoint.close();
  await rm(directory, { recursive: true, force: true });
});

const noPorts = { PARLEY_PORT: "0", PARLEY_MANAGEMENT_PORT: "0" };
const memory = { ...noPorts, PARLEY_STORE: "memory" };
const database = () => ({
  ...noPorts,
  DATABASE_URL: inject("postgresUrl"),
  PARLEY_SCHEMA: `doctor_${process.pid}`,
});
const secret = "sk-very-secret";
const models = () => ({
  PARLEY_LLM_BASE_URL: `http://127.0.0.1:${portOf(endpoint)}/v1`,
  PARLEY_LLM_MODEL: "small",
  PARLEY_LLM_API_KEY: secret,
  PARLEY_MODERATION_BASE_URL: `http://127.0.0.1:${portOf(endpoint)}/v1`,
  PARLEY_MODERATION_MODEL: "judge",
  PARLEY_MODERATION_API_KEY: secret,
});

/** Runs the doctor with these settings, and returns a function that looks up the findings of a check. */
const examine = async (settings: Readonly<Record<string, string>>) => {
  const { code, stderr, stdout } = await here(["doctor", "--json"], settings);
  const findings: ReadonlyArray<Finding> = JSON.parse(stdout);
  for (const { hint, status } of findings) expect(hint === null).toBe(status === "ok");
  const failed = findings.filter(({ status }) => status === "failed");
  expect(code).toBe(failed.length === 0 ? 0 : 1);
  if (failed.length > 0) expect(stderr).toMatch(oneLineAndHint);
  expect(`${stdout}${stderr}`).not.toContain("secret");
  return (check: string) => findings.filter((finding) => finding.check === check);
};

it("the doctor reports ok for every check if nothing is wrong, and writes nothing", async () => {
  const { code, stderr, stdout } = await here(["doctor"], { ...database(), ...models() });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout.replace(/:\d+/g, ":0").replace(/18\.\d+/, "18.x")).toBe(
    "ok       settings    All settings are valid.\n" +
      "ok       database    PostgreSQL 18.x (UTF8) is responding.\n" +
      'ok       model       small at 127.0.0.1:0 is responding: "pong" (length; 0 + 0 tokens).\n' +
      "ok       moderation  judge at 127.0.0.1:0 is responding.\n",
  );
  const call = received.find((call) => call.startsWith("/v1/chat/completions"))!;
  expect(call).toContain(`Bearer ${secret}`);
  const { max_tokens, messages, stream } = JSON.parse(call.slice(call.indexOf("{")));
  const roles = messages.map(({ role }: { role: string }) => role);
  expect({ max_tokens, stream, roles }).toEqual({
    max_tokens: 4096,
    stream: true,
    roles: ["system", "user", "assistant", "user"],
  });
  const fresh = { ...database(), PARLEY_SCHEMA: `doctor_fresh_${process.pid}` };
  for (const _ of [1, 2]) {
    const [, schema] = (await examine(fresh))("database");
    const message = expect.stringContaining('"npx --yes pnpm@12 --silent parley migrate"');
    expect(schema).toMatchObject({ status: "warning", message });
  }
  const findingsOf = await examine({ ...noPorts, PARLEY_DATA_DIR: join(directory, "data") });
  expect(findingsOf("database")[0]?.message).toBe(
    `There is no database in PARLEY_DATA_DIR ${join(directory, "data")} yet; the server creates one when it first starts.`,
  );
  expect(await readdir(directory)).toEqual([]);
});

it.each([
  [400, "failed"],
  [401, "failed"],
  [429, "warning"],
])(
  "the doctor names the settings of an endpoint that responds with HTTP %d",
  async (statusCode, result) => {
    status = statusCode;
    try {
      const findingsOf = await examine({ ...memory, ...models() });
      for (const [check, kind] of [
        ["model", "LLM"],
        ["moderation", "MODERATION"],
      ] as const) {
        const answer = '{"error":{"message":"about the key Bearer [key]"}}';
        const message = expect.stringContaining(
          `HTTP ${statusCode}. It sent: ${statusCode} ${answer}`,
        );
        const hint = expect.stringContaining(`PARLEY_${kind}_API_KEY`);
        expect(findingsOf(check)).toMatchObject([{ status: result, message, hint }]);
      }
    } finally {
      status = 200;
    }
  },
);

it("the doctor calls each model and reads each folder, including those that chatbots name", async () => {
  const files = join(directory, "files");
  await mkdir(join(files, "empty"), { recursive: true });
  await writeFile(join(files, "one.md"), "# One\n\nText.");
  const more = ["--moderation", "endpoint", "--model", "own", "--knowledge", "manuals"];
  expect((await here(["chatbot", "set", "--chatbot", "N", ...more], database())).code).toBe(0);
  const without = await examine(database());
  expect(without("documents")).toMatchObject([
    { status: "failed", message: expect.stringContaining("PARLEY_KNOWLEDGE_DIR is not set") },
  ]);
  expect(without("model")).toMatchObject([{ status: "warning" }]);
  expect(without("moderation")).toMatchObject([{ status: "failed" }]);
  const create = ["chatbot", "create", "--workspace", "W", "--name", "Nosy"];
  expect((await here(create, database())).code).toBe(0);
  const findingsOf = await examine({
    ...database(),
    ...models(),
    PARLEY_LLM_FALLBACK_BASE_URL: "http://127.0.0.1:1",
    PARLEY_LLM_FALLBACK_MODEL: "large",
    PARLEY_KNOWLEDGE_DIR: join(files, "empty"),
  });
  expect(findingsOf("documents")).toMatchObject([
    { status: "warning" },
    { status: "failed" },
    { status: "warning", message: expect.stringMatching(/other chatbots' documents: Nosy\.$/) },
  ]);
  expect(findingsOf("model")).toMatchObject([
    { status: "ok", message: expect.stringContaining("small at") },
    { status: "failed", hint: expect.stringContaining("PARLEY_LLM_FALLBACK_BASE_URL") },
    { status: "ok", message: expect.stringContaining("own at") },
  ]);
  const usual = await examine({ ...memory, PARLEY_KNOWLEDGE_DIR: files });
  expect(usual("documents")).toMatchObject([{ status: "ok" }]);
});
