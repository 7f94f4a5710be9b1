/**
 * Broken set-ups: the doctor says in advance what would keep the server from starting, and what to do about it.
 */
import * as PgConnection from "@effect/sql-pg/PgConnection";
import { generateKey } from "@parley/core";
import { Effect, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import { once } from "node:events";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { launch, type TestServer } from "../contract/launch.ts";
import { here, oneLineAndHint, type Finding } from "./here.ts";

const query = (...statements: ReadonlyArray<string>) =>
  PgConnection.make({ url: Redacted.make(inject("postgresUrl")) }).pipe(
    Effect.flatMap((connection) => Effect.forEach(statements, (text) => connection.query(text))),
    Effect.scoped,
    Effect.runPromise,
  );
const schema = `broken_${process.pid}`;

let directory: string;
let other: Server;
let testServer: TestServer;

const memory = { PARLEY_STORE: "memory" };
const postgres = () => ({ DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema });
const file = (name: string) => join(directory, name);
const as = (change: (url: URL) => void) => {
  const url = new URL(inject("postgresUrl"));
  change(url);
  return { DATABASE_URL: url.href };
};
const portOfOther = () => String((other.address() as AddressInfo).port);
const key = Redacted.value(
  Effect.runSync(generateKey.pipe(Effect.provide(SecureRandom.layerWebCrypto))),
);

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-broken-"));
  other = createServer((socket) => socket.end("220 mail.example\r\n")).listen(0, "127.0.0.1");
  await once(other, "listening");
  const keys = [{ key, scopes: ["read"] }];
  const declare = (name: string, ...chatbots: ReadonlyArray<object>) =>
    writeFile(file(name), JSON.stringify({ chatbots }));
  const bot = { workspace: "W", name: "B" };
  await declare("good.json", { ...bot, keys });
  await declare("taken.json", { ...bot, name: "C", keys });
  const sample = "prl_0V2ClbsUvRtr_KNsvc24Uij3stmrY9QNFvKQNdDB0DxCe_32uFFN";
  await declare("sample.json", { ...bot, keys: [{ key: sample, scopes: ["read"] }] });
  await writeFile(file("blank"), "\n");
  expect((await here(["migrate"], postgres())).code).toBe(0);
  expect((await here(["provision", file("good.json")], postgres())).code).toBe(0);
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
  await rm(directory, { recursive: true, force: true });
  await query(...["latin", "ascii"].map((name) => `drop database ${schema}_${name} with (force)`));
});

type SetUp = () => Readonly<Record<string, string>>;
const free = { PARLEY_PORT: "0", PARLEY_MANAGEMENT_PORT: "0" };

const examine = async (setUp: SetUp) => {
  const settings = { ...free, PARLEY_DATA_DIR: file("data"), ...setUp() };
  const doctor = await here(["doctor", "--json"], settings);
  const findings: ReadonlyArray<Finding> = JSON.parse(doctor.stdout);
  return { settings, code: doctor.code, findings };
};

const failing: ReadonlyArray<readonly [string, SetUp, check: string, message: RegExp]> = [
  ["an invalid value", () => ({ PARLEY_STORE: "disk" }), "settings", /PARLEY_STORE/],
  [
    "the same port twice",
    () => ({ ...memory, PARLEY_PORT: "7", PARLEY_ASK_PORT: "7" }),
    "settings",
    /PARLEY_ASK_PORT/,
  ],
  [
    "a database URL with an unencoded password",
    () => ({ DATABASE_URL: "postgres://a:se/cret@b/d" }),
    "settings",
    /percent-encode/,
  ],
  ...["secret", "choose-one", "password"].map(
    (password): readonly [string, SetUp, string, RegExp] => [
      `the placeholder ${password} as the database's password`,
      () => as((url) => (url.password = password)),
      "settings",
      /placeholder/,
    ],
  ),
  [
    "a placeholder as the database's password, in a parameter",
    () => ({ DATABASE_URL: "postgres://a@127.0.0.1:1/d?password=choose%2Done" }),
    "settings",
    /placeholder/,
  ],
  [
    "the key of the samples",
    () => ({ ...memory, PARLEY_PROVISION: file("sample.json") }),
    "provision",
    /not a valid key/,
  ],
  [
    "a missing provisioning file",
    () => ({ ...memory, PARLEY_PROVISION: file("nowhere") }),
    "provision",
    /cannot be read/,
  ],
  [
    "a provisioning file with another chatbot's key",
    () => ({ ...postgres(), PARLEY_PROVISION: file("taken.json") }),
    "provision",
    /another chatbot/,
  ],
  [
    "a port that another program uses",
    () => ({ ...memory, PARLEY_PORT: portOfOther() }),
    "listeners",
    /PARLEY_PORT.*in use/,
  ],
  [
    "the host of another machine",
    () => ({ ...memory, PARLEY_HOST: "192.0.2.1" }),
    "listeners",
    /192.* for PARLEY_PORT/,
  ],
  [
    "a host that does not exist",
    () => ({ ...memory, PARLEY_HOST: "nowhere.invalid" }),
    "listeners",
    /nowhere\.invalid for PARLEY_PORT/,
  ],
  [
    "the management host of another machine",
    () => ({
      ...memory,
      PARLEY_MANAGEMENT_PORT: `192.0.2.1:${portOfOther()}`,
    }),
    "listeners",
    /192.* for PARLEY_MANAGEMENT_PORT/,
  ],
  [
    "a data directory below a file",
    () => ({ PARLEY_DATA_DIR: file("blank/data") }),
    "directory",
    /write to .*blank/,
  ],
  [
    "no database server",
    () => ({ DATABASE_URL: "postgres://a:hidden@127.0.0.1:1/d" }),
    "database",
    /ECONNREFUSED/,
  ],
  ["a wrong password", () => as((url) => (url.password = "hidden")), "database", /password/],
  [
    "a database whose encoding is not UTF-8",
    () => as((url) => (url.pathname = `/${schema}_latin`)),
    "database",
    /LATIN1/,
  ],
  [
    "a role without permission to migrate",
    () => ({ ...as((url) => (url.username = "parley_server")), PARLEY_SCHEMA: "none" }),
    "database",
    /cannot change it.*parley migrate/,
  ],
  [
    "a missing documents folder",
    () => ({ ...memory, PARLEY_KNOWLEDGE_DIR: file("nowhere") }),
    "documents",
    /nowhere/,
  ],
  [
    "an invalid collector address",
    () => ({ ...memory, OTEL_EXPORTER_OTLP_ENDPOINT: "nonsense" }),
    "telemetry",
    /OTEL_EXPORTER_OTLP_ENDPOINT/,
  ],
];

describe("parley doctor", () => {
  it.each(failing)(
    "the doctor says what keeps a server from starting, and what to do about it: %s",
    async (_, setUp, check, message) => {
      const { code, findings, settings } = await examine(setUp);
      expect(code).toBe(1);
      const hint = expect.any(String);
      const expected = { check, status: "failed", message: expect.stringMatching(message), hint };
      expect(findings).toContainEqual(expected);
      const start = await here(["serve"], settings);
      expect(start).toMatchObject({ code: 1, stdout: "" });
      expect(start.stderr).toMatch(oneLineAndHint);
      expect(JSON.stringify([findings, start])).not.toMatch(/hidden|se\/cret|choose-one/);
    },
  );
});

const warned: ReadonlyArray<readonly [string, SetUp, check: string, message: RegExp]> = [
  [
    "an unreachable collector",
    () => ({ ...memory, OTEL_EXPORTER_OTLP_ENDPOINT: "http://127.0.0.1:1" }),
    "telemetry",
    /Nothing is listening/,
  ],
  [
    "a database with lc_ctype C",
    () => as((url) => (url.pathname = `/${schema}_ascii`)),
    "database",
    /ASCII/,
  ],
  [
    "a directory to which the first key cannot be written",
    () => ({ ...memory, PARLEY_DATA_DIR: file("blank/data") }),
    "directory",
    /write to .*blank/,
  ],
  ["the memory store", () => memory, "database", /chats are lost/],
  [
    "a read-only database",
    () => {
      const option = encodeURIComponent("-c default_transaction_read_only=on");
      return { ...postgres(), ...as((url) => (url.search = `?options=${option}`)) };
    },
    "database",
    /refuses writes: its transactions/,
  ],
];

it.each(warned)("the doctor warns about %s", async (_, setUp, check, message) => {
  const { findings } = await examine(setUp);
  const hint = expect.any(String);
  const expected = { check, status: "warning", message: expect.stringMatching(message), hint };
  expect(findings).toContainEqual(expected);
});

it("beside its own running server, the doctor is content with the ports, also on all addresses", async () => {
  for (const more of [{}, { PARLEY_HOST: "0.0.0.0" }, { PARLEY_HOST: "localhost" }]) {
    const PARLEY_PORT = new URL(testServer.target.origin).port;
    const { code, findings } = await examine(() => ({ ...memory, PARLEY_PORT, ...more }));
    expect(code).toBe(0);
    const message = `A Parley server is listening on PARLEY_PORT ${PARLEY_PORT}.`;
    expect(findings).toContainEqual({ check: "listeners", status: "ok", message, hint: null });
  }
});
