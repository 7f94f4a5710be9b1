import * as PgClient from "@effect/sql-pg/PgClient";
import { Effect, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { once } from "node:events";
import { mkdir, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { here, oneLineAndHint } from "./here.ts";

let directory: string;
let endpoint: Server;
/** What the endpoint answers with; 200: as it should. */
let status = 200;
const received: Array<string> = [];

const portOf = (server: Server) => (server.address() as AddressInfo).port;

const listening = async (server: Server) => {
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
};

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-doctor-test-"));
  endpoint = await listening(
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

interface Finding {
  readonly check: string;
  readonly status: string;
  readonly message: string;
  readonly hint: string | null;
}

/** What is found with these settings, by the name of its check, and the exit code. */
const examined = async (settings: Readonly<Record<string, string>>) => {
  const { code, stderr, stdout } = await here(["doctor", "--json"], settings);
  const findings: ReadonlyArray<Finding> = JSON.parse(stdout);
  for (const { hint, status } of findings) expect(hint === null).toBe(status === "ok");
  const failed = findings.filter(({ status }) => status === "failed");
  expect(code).toBe(failed.length === 0 ? 0 : 1);
  if (failed.length > 0) expect(stderr).toMatch(oneLineAndHint);
  expect(`${stdout}${stderr}`).not.toContain("secret");
  return (check: string) => findings.filter((finding) => finding.check === check);
};

describe("parley doctor", () => {
  it("finds nothing wrong where nothing is, and writes nothing", async () => {
    const { code, stderr, stdout } = await here(["doctor"], { ...database(), ...models() });
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^ok {7}settings {8}All settings can be read\.$/m);
    expect(stdout).toMatch(/^ok {7}database {8}PostgreSQL 18\.\d+ with UTF8 answers\.$/m);
    expect(stdout).toMatch(/^ok {7}migrations {6}The schema is up to date\.$/m);
    expect(stdout).toMatch(/^ok {7}model {11}small at 127\.0\.0\.1:\d+ answers\.$/m);
    expect(stdout).toMatch(/^ok {7}moderation {6}judge at 127\.0\.0\.1:\d+ answers\.$/m);
    expect(stdout).toMatch(/^warning {2}chatbots {8}No live key opens 1 "N"\.\n {25}"parley key/m);
    expect(stdout).not.toContain(secret);
    // The shortest call there is.
    const call = received.find((one) => one.startsWith("/v1/chat/completions"))!;
    expect(call).toContain(`Bearer ${secret}`);
    expect(call).toMatch(/"max_tokens":1\b/);
    const fresh = { ...database(), PARLEY_SCHEMA: `doctor_fresh_${process.pid}` };
    for (const _ of [1, 2]) {
      const found = await examined(fresh);
      expect(found("migrations")[0]?.status).toBe("warning");
      expect(found("migrations")[0]?.hint).toContain('"parley migrate"');
    }
    const dataDir = join(directory, "data");
    const found = await examined({ ...noPorts, PARLEY_DATA_DIR: dataDir });
    expect(found("database")[0]?.message).toContain(`There is none in ${dataDir} yet`);
    expect(found("data directory")[0]?.status).toBe("ok");
    expect(await readdir(directory)).toEqual([]);
  });

  it("tells all that is wrong with the settings", async () => {
    const found = await examined({
      PARLEY_STORE: "nonsense",
      PARLEY_PORT: "x",
      PARLEY_ASK_PATH: "/api",
      PARLEY_LLM_BASE_URL: "nonsense",
      PARLEY_LLM_MODEL: "small",
      PARLEY_MODERATION_MODEL: "alone",
    });
    const messages = found("settings").map(({ message }) => message.split(/[: ]/)[0]);
    expect(messages.toSorted()).toEqual([
      "PARLEY_BASE_PATH",
      "PARLEY_LLM_BASE_URL",
      "PARLEY_MODERATION_BASE_URL",
      "PARLEY_PORT",
      "PARLEY_STORE",
    ]);
    const misspelt = await examined({ ...memory, PARLEY_PROT: "80" });
    expect(misspelt("settings")).toMatchObject([
      { status: "warning", message: "PARLEY_PROT is no setting." },
    ]);
    expect(misspelt("database")[0]?.status).toBe("warning");
  });

  it.each([
    ["postgres://parley:secret@127.0.0.1:1/parley", "Start PostgreSQL"],
    ["postgres://parley:secret@nowhere.invalid/parley", "Correct the host"],
    ["nonsense", "is written postgres://"],
  ])("says what to do about the database %s", async (url, hint) => {
    const [finding, ...others] = (await examined({ ...noPorts, DATABASE_URL: url }))("database");
    expect(others).toEqual([]);
    expect(finding).toMatchObject({ status: "failed", hint: expect.stringContaining(hint) });
  });

  it("says what to do about a user, or a database, that is not known", async () => {
    const url = new URL(inject("postgresUrl"));
    url.password = "wrong-secret";
    const user = await examined({ ...noPorts, DATABASE_URL: url.href });
    expect(user("database")[0]?.hint).toContain("Correct user and password");
    const other = new URL(inject("postgresUrl"));
    other.pathname = "/nowhere";
    const found = await examined({ ...noPorts, DATABASE_URL: other.href });
    expect(found("database")[0]?.hint).toContain("Make that database");
  });

  it("tells what a server would refuse of the database's roles", async () => {
    const found = await examined({ ...database(), PARLEY_ROW_SECURITY: "true" });
    expect(found("database")).toMatchObject([
      { status: "ok" },
      { status: "failed", message: expect.stringContaining("owns the tables") },
    ]);
  });

  it("tells what the server's role may not write to", async () => {
    const owner = (statement: string) =>
      PgClient.make({
        url: Redacted.make(database().DATABASE_URL),
        startupParameters: { search_path: database().PARLEY_SCHEMA },
      }).pipe(
        Effect.flatMap((sql) => sql.unsafe(statement)),
        Effect.scoped,
        Effect.provide(Reactivity.layer),
        Effect.runPromise,
      );
    await owner("revoke insert on entry from current_user");
    try {
      const found = await examined(database());
      const message = `The server's role may not write to "entry" as a server does.`;
      expect(found("database")[1]).toMatchObject({ status: "failed", message });
    } finally {
      await owner("grant insert on entry to current_user");
    }
  });

  it.each([
    [401, "failed", "API_KEY"],
    [403, "failed", "API_KEY"],
    [404, "failed", "BASE_URL"],
    [429, "warning", "API_KEY"],
    [500, "failed", "trouble of its own"],
  ])("says which setting is to be changed for HTTP %d", async (answered, told, hint) => {
    status = answered;
    try {
      const found = await examined({ ...memory, ...models() });
      expect(found("model")).toMatchObject([
        { status: told, message: expect.stringContaining(`HTTP ${answered}`) },
      ]);
      expect(found("model")[0]?.hint).toContain(hint);
      expect(found("moderation")[0]?.status).toBe("failed");
      expect(found("moderation")[0]?.hint).toContain(hint.replace("API_KEY", "MODERATION_API_KEY"));
    } finally {
      status = 200;
    }
  });

  it("warns of a database that takes no writes", async () => {
    const { DATABASE_URL } = database();
    const url = `${DATABASE_URL}?options=${encodeURIComponent("-c default_transaction_read_only=on")}`;
    const { code, stdout } = await here(["doctor"], { ...database(), DATABASE_URL: url });
    expect(stdout).toMatch(/^warning +database +It takes no writes: /m);
    expect(code).toBe(0);
  });

  it("names the setting of an endpoint that cannot be reached", async () => {
    const found = await examined({
      ...memory,
      ...models(),
      PARLEY_LLM_FALLBACK_2_BASE_URL: "http://127.0.0.1:1",
      PARLEY_LLM_FALLBACK_2_MODEL: "large",
    });
    expect(found("model")).toMatchObject([
      { status: "ok" },
      {
        status: "failed",
        message: expect.stringContaining("large at 127.0.0.1:1"),
        hint: expect.stringContaining("PARLEY_LLM_FALLBACK_2_BASE_URL"),
      },
    ]);
  });

  it("looks whether it could listen", async () => {
    const parley = await listening(
      createServer((_, response) => response.end('{"data":{"live":true}}')),
    );
    const other = await listening(createServer((_, response) => response.end("hello")));
    const found = await examined({
      ...memory,
      PARLEY_PORT: String(portOf(other)),
      PARLEY_MANAGEMENT_PORT: String(portOf(parley)),
    });
    expect(found("ports")).toMatchObject([
      { status: "failed", hint: expect.stringContaining("PARLEY_PORT") },
      { status: "ok", message: expect.stringContaining("running server") },
    ]);
    other.close();
    parley.close();
    const elsewhere = await examined({ ...memory, PARLEY_PORT: "3000", PARLEY_HOST: "192.0.2.1" });
    expect(elsewhere("ports")[0]?.hint).toContain("PARLEY_HOST");
    const same = await examined({ ...memory, PARLEY_PORT: "3000", PARLEY_ASK_PORT: "3000" });
    expect(same("ports")[0]?.hint).toContain("PARLEY_ASK_PORT");
  });

  it("looks for the files", async () => {
    const files = join(directory, "files");
    await mkdir(join(files, "empty"), { recursive: true });
    await writeFile(join(files, "one.md"), "# One\n\nText.");
    const provisioning = join(files, "chatbots.json");
    await writeFile(provisioning, '{"chatbots":[{"workspace":"W"}]}');
    const all = (folder: string) => ({
      ...memory,
      PARLEY_KNOWLEDGE_DIR: join(files, folder),
      PARLEY_KNOWLEDGE_ROOT: join(files, folder),
      PARLEY_PROVISION: provisioning,
    });
    const found = await examined(all(""));
    expect(found("documents").map(({ status }) => status)).toEqual(["ok", "ok"]);
    expect(found("provisioning")).toMatchObject([
      { status: "failed", message: expect.stringContaining("chatbots.0.name: Missing key") },
    ]);
    const missing = await examined(all("nowhere"));
    expect(missing("documents").map(({ status }) => status)).toEqual(["failed", "failed"]);
    expect((await examined(all("empty")))("documents")[0]?.status).toBe("warning");
    const unwritable = await examined({ ...noPorts, PARLEY_DATA_DIR: "/proc/nowhere" });
    expect(unwritable("data directory")).toMatchObject([
      { status: "failed", hint: expect.stringContaining("PARLEY_DATA_DIR") },
    ]);
  });

  it("looks whether the chatbots and the server fit together", async () => {
    const set = ["chatbot", "set", "--chatbot", "N", "--moderation", "endpoint"];
    const more = ["--model", "own", "--knowledge", "manuals"];
    expect((await here([...set, ...more], database())).code).toBe(0);
    const found = await examined(database());
    expect(found("chatbots").map(({ status }) => status)).toEqual([
      "ok",
      "warning",
      "failed",
      "warning",
      "failed",
    ]);
    status = 404;
    try {
      const asked = await examined({ ...database(), ...models() });
      expect(asked("chatbots").map(({ message }) => message)).not.toContain("is not asked");
      expect(asked("model").map(({ message }) => message.split(" ")[0])).toEqual(["own", "small"]);
    } finally {
      status = 200;
    }
  });
});
