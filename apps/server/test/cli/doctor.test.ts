/**
 * The doctor says in advance what would keep a server from starting, and what to do about it.
 */
import * as PgConnection from "@effect/sql-pg/PgConnection";
import { generateKey } from "@parley/core";
import { Effect, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo, type Server } from "node:net";
import { join } from "node:path";
import { afterAll, beforeAll, expect, inject, it } from "vitest";
import { launch, type TestServer } from "../contract/launch.ts";
import { startTestModel, type TestModel } from "../TestModel.ts";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here, oneLineAndHint, type Finding } from "./here.ts";

const query = (...statements: ReadonlyArray<string>) =>
  PgConnection.make({ url: Redacted.make(inject("postgresUrl")) }).pipe(
    Effect.flatMap((connection) => Effect.forEach(statements, (text) => connection.query(text))),
    Effect.scoped,
    Effect.runPromise,
  );
const schema = `doctor_${process.pid}`;

const directory = temporaryFolder();
/** A program that is not Parley, and the endpoint of models and moderation. */
let other: Server;
let endpoint: TestModel;
/** The status of the endpoint's responses. */
let status = 200;
let testServer: TestServer;

const file = (name: string) => join(directory, name);
const portOf = (server: Server) => String((server.address() as AddressInfo).port);
const memory = { PARLEY_STORE: "memory" };
const database = () => ({ DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema });
const as = (change: (url: URL) => void) => {
  const url = new URL(inject("postgresUrl"));
  change(url);
  return { DATABASE_URL: url.href };
};
const secret = "sk-very-secret";
const models = () => ({
  ...endpoint.settings,
  PARLEY_LLM_MODEL: "small",
  PARLEY_LLM_API_KEY: secret,
  PARLEY_MODERATION_BASE_URL: endpoint.settings.PARLEY_LLM_BASE_URL,
  PARLEY_MODERATION_MODEL: "judge",
  PARLEY_MODERATION_API_KEY: secret,
});

beforeAll(async () => {
  other = createServer((socket) => socket.end("220 mail.example\r\n")).listen(0, "127.0.0.1");
  await once(other, "listening");
  endpoint = await startTestModel(
    ({ end, say }) => {
      say("pong");
      end();
    },
    ({ headers }) =>
      status === 200 ? undefined : [status, { message: `about the key ${headers.authorization}` }],
  );
  const key = Redacted.value(
    Effect.runSync(generateKey.pipe(Effect.provide(SecureRandom.layerWebCrypto))),
  );
  const declare = (name: string, chatbot: string, key: string) => {
    const chatbots = [{ workspace: "W", name: chatbot, keys: [{ key, scopes: ["read"] }] }];
    return writeFile(file(name), JSON.stringify({ chatbots }));
  };
  await declare("good.json", "N", key);
  await declare("taken.json", "C", key);
  await declare("sample.json", "N", "prl_0V2ClbsUvRtr_KNsvc24Uij3stmrY9QNFvKQNdDB0DxCe_32uFFN");
  await writeFile(file("blank"), "\n");
  for (const command of [["migrate"], ["provision", file("good.json")]])
    expect((await here(command, database())).code).toBe(0);
  const databases = { latin: "encoding 'LATIN1' lc_collate 'C'", ascii: "" };
  await query(
    ...Object.entries(databases).map(
      ([name, more]) => `create database ${schema}_${name} template template0 ${more} lc_ctype 'C'`,
    ),
  );
  testServer = await launch("memory");
});
afterAll(async () => {
  await testServer?.stop();
  other.close();
  endpoint.close();
  await query(...["latin", "ascii"].map((name) => `drop database ${schema}_${name} with (force)`));
});

type Settings = Readonly<Record<string, string>>;
const free = { PARLEY_PORT: "0", PARLEY_MANAGEMENT_PORT: "0" };

/** Runs the doctor, and returns its findings and a function that looks up those of a check. */
const examine = async (more: Settings) => {
  const settings = { ...free, PARLEY_DATA_DIR: file("nowhere/data"), ...more };
  const { code, stderr, stdout } = await here(["doctor", "--json"], settings);
  const findings: ReadonlyArray<Finding> = JSON.parse(stdout);
  for (const { hint, status } of findings) expect(hint === null).toBe(status === "ok");
  const isFailed = findings.some(({ status }) => status === "failed");
  expect(code).toBe(isFailed ? 1 : 0);
  if (isFailed) expect(stderr).toMatch(oneLineAndHint);
  expect(`${stdout}${stderr}`).not.toMatch(/sk-very|hidden|se\/cret|choose-one/);
  const findingsOf = (check: string) => findings.filter((finding) => finding.check === check);
  return { settings, findings, findingsOf };
};

/** Settings that are invalid. A finding names the first of each. */
const invalidSettings: ReadonlyArray<Settings> = [
  { PARLEY_PORT: "x" },
  { PARLEY_BASE_PATH: "/docs" },
  { PARLEY_BASE_PATH: "/a/../b" },
  { PARLEY_BASE_PATH: "/api", PARLEY_ASK_PATH: "/api" },
  { PARLEY_BASE_PATH: "/api", PARLEY_ASK_PATH: "/api/ask" },
  { PARLEY_STORE: "disk" },
  { PARLEY_ASK_PORT: "7", PARLEY_PORT: "7" },
  { PARLEY_MANAGEMENT_PORT: "localhost" },
  { PARLEY_CORS_ORIGINS: "foo" },
  { PARLEY_LLM_BASE_URL: "nonsense", PARLEY_LLM_MODEL: "m" },
  { PARLEY_LLM_BASE_URL: "https://user:hidden@llm.example/v1", PARLEY_LLM_MODEL: "m" },
  { PARLEY_LLM_BASE_URL: "https://hidden@llm.example/v1", PARLEY_LLM_MODEL: "m" },
  { PARLEY_LLM_BASE_URL: "https://user:hidden@", PARLEY_LLM_MODEL: "m" },
  { PARLEY_LLM_BASE_URL: "user:hidden@llm.example/v1", PARLEY_LLM_MODEL: "m" },
  { PARLEY_LLM_BASE_URL: "localhost:11434/v1", PARLEY_LLM_MODEL: "m" },
  { PARLEY_LLM_MODEL: "alone" },
  { PARLEY_ASK_DEADLINE: "30 parsecs" },
  { PARLEY_ASKS_AT_ONCE: "0" },
  { PARLEY_QUESTION_LENGTH: "20001" },
  { PARLEY_PAGES: "maybe" },
  { PARLEY_DATABASE_CONNECTIONS: "4" },
  { PARLEY_MODERATION: "endpoint" },
];

it("the doctor says what keeps a server from starting, and what to do about it", async () => {
  const failing: ReadonlyArray<readonly [check: string, message: RegExp, Settings]> = [
    ...invalidSettings.map(
      (each) => ["settings", new RegExp(Object.keys(each)[0]!), { ...memory, ...each }] as const,
    ),
    ["settings", /percent-encode/, { DATABASE_URL: "postgres://a:se/cret@b/d" }],
    ["settings", /placeholder/, as((url) => (url.password = "secret"))],
    ["settings", /placeholder/, as((url) => (url.password = "choose-one"))],
    ["settings", /placeholder/, as((url) => (url.password = "password"))],
    ["settings", /placeholder/, { DATABASE_URL: "postgres://a@b:1/d?password=choose%2Done" }],
    ["provision", /not a valid key/, { ...memory, PARLEY_PROVISION: file("sample.json") }],
    ["provision", /cannot be read/, { ...memory, PARLEY_PROVISION: file("nowhere") }],
    ["provision", /another chatbot/, { ...database(), PARLEY_PROVISION: file("taken.json") }],
    ["listeners", /PARLEY_PORT.*in use/, { ...memory, PARLEY_PORT: portOf(other) }],
    ["listeners", /192.* for PARLEY_PORT/, { ...memory, PARLEY_HOST: "192.0.2.1" }],
    ["listeners", /no\.invalid for PARLEY_PORT/, { ...memory, PARLEY_HOST: "no.invalid" }],
    [
      "listeners",
      /192.* for PARLEY_MANAGEMENT_PORT/,
      { ...memory, PARLEY_MANAGEMENT_PORT: `192.0.2.1:${portOf(other)}` },
    ],
    ["directory", /write to .*blank/, { PARLEY_DATA_DIR: file("blank/data") }],
    ["database", /ECONNREFUSED/, { DATABASE_URL: "postgres://a:hidden@127.0.0.1:1/d" }],
    ["database", /password/, as((url) => (url.password = "hidden"))],
    ["database", /LATIN1/, as((url) => (url.pathname = `/${schema}_latin`))],
    [
      "database",
      /cannot change it.*parley migrate/,
      { ...as((url) => (url.username = "parley_server")), PARLEY_SCHEMA: "none" },
    ],
    ["documents", /nowhere/, { ...memory, PARLEY_KNOWLEDGE_DIR: file("nowhere") }],
    [
      "telemetry",
      /OTEL_EXPORTER_OTLP_ENDPOINT/,
      { ...memory, OTEL_EXPORTER_OTLP_ENDPOINT: "nonsense" },
    ],
  ];
  for (const [check, message, more] of failing) {
    const { findings, settings } = await examine(more);
    const expected = { check, status: "failed", message: expect.stringMatching(message) };
    expect(findings).toContainEqual({ ...expected, hint: expect.any(String) });
    const start = await here(["serve"], settings);
    expect(start).toMatchObject({ code: 1, stdout: "" });
    expect(start.stderr).toMatch(oneLineAndHint);
    expect(start.stderr).not.toMatch(/hidden|se\/cret|choose-one/);
  }
}, 90_000);

it("the doctor warns about what a server starts with in spite of it", async () => {
  const readOnly = encodeURIComponent("-c default_transaction_read_only=on");
  const warned: ReadonlyArray<readonly [check: string, message: RegExp, Settings]> = [
    [
      "telemetry",
      /Nothing is listening/,
      { ...memory, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" },
    ],
    ["database", /ASCII/, as((url) => (url.pathname = `/${schema}_ascii`))],
    ["directory", /write to .*blank/, { ...memory, PARLEY_DATA_DIR: file("blank/data") }],
    ["database", /chats are lost/, memory],
    [
      "database",
      /refuses writes: its transactions/,
      { ...database(), ...as((url) => (url.search = `?options=${readOnly}`)) },
    ],
  ];
  for (const [check, message, more] of warned) {
    const { findings } = await examine(more);
    const expected = { check, status: "warning", message: expect.stringMatching(message) };
    expect(findings).toContainEqual({ ...expected, hint: expect.any(String) });
  }
});

it("beside its own running server, the doctor is content with the ports, also on all addresses", async () => {
  for (const more of [{}, { PARLEY_HOST: "0.0.0.0" }, { PARLEY_HOST: "localhost" }]) {
    const PARLEY_PORT = new URL(testServer.target.origin).port;
    const { findings } = await examine({ ...memory, PARLEY_PORT, ...more });
    const message = `A Parley server is listening on PARLEY_PORT ${PARLEY_PORT}.`;
    expect(findings).toContainEqual({ check: "listeners", status: "ok", message, hint: null });
  }
});

it("the doctor reports ok for every check if nothing is wrong, and writes nothing", async () => {
  const { code, stderr, stdout } = await here(["doctor"], { ...free, ...database(), ...models() });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  expect(stdout.replace(/:\d+/g, ":0").replace(/18\.\d+/, "18.x")).toBe(
    "ok       settings    All settings are valid.\n" +
      "ok       database    PostgreSQL 18.x (UTF8) is responding.\n" +
      'ok       model       small at 127.0.0.1:0 is responding: "pong" (stop; 0 + 0 tokens).\n' +
      "ok       moderation  judge at 127.0.0.1:0 is responding.\n",
  );
  const call = endpoint.received.find(({ path }) => path === "/v1/chat/completions")!;
  expect(call.headers.authorization).toBe(`Bearer ${secret}`);
  const { max_tokens, messages, stream } = JSON.parse(call.body);
  const roles = messages.map(({ role }: { role: string }) => role);
  expect({ max_tokens, stream, roles }).toEqual({
    max_tokens: 4096,
    stream: true,
    roles: ["system", "user", "assistant", "user"],
  });
  const fresh = { ...database(), PARLEY_SCHEMA: `${schema}_fresh` };
  for (const _ of [1, 2]) {
    const [, migration] = (await examine(fresh)).findingsOf("database");
    const message = expect.stringContaining('"npx --yes pnpm@12 --silent parley migrate"');
    expect(migration).toMatchObject({ status: "warning", message });
  }
  const { findingsOf } = await examine({});
  expect(findingsOf("database")[0]?.message).toBe(
    `There is no database in PARLEY_DATA_DIR ${file("nowhere/data")} yet; the server creates one when it first starts.`,
  );
  expect(existsSync(file("nowhere"))).toBe(false);
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
      const { findingsOf } = await examine({ ...memory, ...models() });
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
  const files = file("files");
  await mkdir(join(files, "empty"), { recursive: true });
  await writeFile(join(files, "one.md"), "# One\n\nText.");
  const more = ["--moderation", "endpoint", "--model", "own", "--knowledge", "manuals"];
  expect((await here(["chatbot", "set", "--chatbot", "N", ...more], database())).code).toBe(0);
  const without = (await examine(database())).findingsOf;
  expect(without("documents")).toMatchObject([
    { status: "failed", message: expect.stringContaining("PARLEY_KNOWLEDGE_DIR is not set") },
  ]);
  expect(without("model")).toMatchObject([{ status: "warning" }]);
  expect(without("moderation")).toMatchObject([{ status: "failed" }]);
  const create = ["chatbot", "create", "--workspace", "W", "--name", "Nosy"];
  expect((await here(create, database())).code).toBe(0);
  const { findingsOf } = await examine({
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
  expect(usual.findingsOf("documents")).toMatchObject([{ status: "ok" }]);
});
