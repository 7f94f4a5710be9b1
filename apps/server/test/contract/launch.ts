/**
 * Runs the real server in its own process and on its own ports, provisioned and with an empty store.
 */
import { generateKey } from "@parley/core";
import { Effect, Record, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import type { ChildProcess } from "node:child_process";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll } from "vitest";
import { start } from "../cli/run.ts";
import type { Target } from "./client.ts";

declare module "vitest" {
  interface ProvidedContext {
    postgresUrl: string;
  }
}

export interface TestServer {
  readonly target: Target;
  readonly child: ChildProcess;
  /** The directory with its files, including the SQLite file in `data`. */
  readonly directory: string;
  /** The server's output so far, for failure messages. */
  readonly log: () => string;
  /** Stops the server and removes its files. Rejects if the server does not stop in time. */
  readonly stop: () => Promise<void>;
}

const chatBot = {
  name: "Contract bot",
  description: "Answers the contract suite — 日本語 😀",
  workspaceName: 'Workspace "A" \\ <&>',
  helloMessage: "Hello! 👋 What would you like to know?",
  moderationErrorMessage: "This question cannot be answered.",
};

const everything = ["read", "write", "ask"];
const visitors = { visitors: true, visitorRatePerMinute: null };
/** The keys of the chatbot under test, of two others and of none. */
const ownKeys = {
  key: { scopes: everything, expiresAt: "2999-01-01T00:00:00.000Z", ...visitors },
  readKey: { scopes: ["read"], ...visitors },
  writeKey: { scopes: ["write"] },
  askKey: { scopes: ["ask"] },
  deleteKey: { scopes: ["delete"] },
  postKey: { scopes: ["post"] },
  fullKey: { scopes: [...everything, "delete", "post"], ...visitors },
  limitedKey: { scopes: ["read"], ratePerMinute: 2 },
  budgetedKey: {
    scopes: everything,
    visitors: true,
    visitorRatePerMinute: 1000,
    tokensPerDay: 1000,
  },
  expiredKey: { scopes: everything, expiresAt: "2001-01-01T00:00:00.000Z" },
};
const otherKeys = { otherKey: { scopes: everything } };
const noHelloKeys = { noHelloKey: { scopes: everything } };
const allKeys = { ...ownKeys, ...otherKeys, ...noHelloKeys, unknownKey: {} };
const freshKeys = Effect.all(
  Record.map(allKeys, () => Effect.map(generateKey, Redacted.value)),
).pipe(Effect.provide(SecureRandom.layerWebCrypto));

/** Resolves when the server is listening. `extra` has further settings, `fields` those of its chatbot. */
export const launch = async (
  store: "memory" | "sqlite" | "postgres",
  extra: Readonly<Record<string, string>> = {},
  fields: object = {},
): Promise<TestServer> => {
  const directory = await mkdtemp(join(tmpdir(), "parley-contract-"));
  const knowledge = join(directory, "knowledge");
  await mkdir(knowledge);
  await writeFile(
    join(knowledge, "ports.md"),
    "# Ports\n\nThe server listens on port 3000. Set PARLEY_PORT to change the port.\n\n" +
      "# Keys\n\nA key is sent in the header x-api-key.\n",
  );

  const keys = await Effect.runPromise(freshKeys);
  const declare = (declared: Partial<typeof allKeys>) =>
    Object.entries(declared).map(([name, more]) => ({
      key: keys[name as keyof typeof keys],
      ...more,
    }));
  const { helloMessage, moderationErrorMessage, workspaceName: workspace, ...names } = chatBot;
  const messages = { helloMessage, moderationErrorMessage };
  const description = "Belongs to somebody else";
  const others = { workspace: "Workspace B" };
  const provision = join(directory, "provision.json");
  await writeFile(
    provision,
    JSON.stringify({
      chatbots: [
        { workspace, ...names, ...messages, ...fields, keys: declare(ownKeys) },
        { ...others, name: "Other bot", description, keys: declare(otherKeys) },
        { ...others, name: "Silent bot", keys: declare(noHelloKeys) },
      ],
    }),
  );

  const settings = {
    PARLEY_STORE: store,
    PARLEY_DATA_DIR: join(directory, "data"),
    PARLEY_PORT: "0",
    PARLEY_MANAGEMENT_PORT: "0",
    PARLEY_PROVISION: provision,
    PARLEY_KNOWLEDGE_DIR: knowledge,
    ...extra,
  };
  const { child, exit, output, untilPrinted } = start(["serve"], settings, undefined, {
    cwd: directory,
  });
  // An interrupted test run must not leave a server running.
  const end = () => child.kill("SIGINT");
  process.once("exit", end);
  const log = () => output.stdout + output.stderr;

  const stop = async () => {
    const deadline = setTimeout(() => child.kill("SIGKILL"), 20_000);
    child.kill("SIGINT");
    await exit;
    process.off("exit", end);
    clearTimeout(deadline);
    await rm(directory, { recursive: true, force: true });
    if (child.signalCode === "SIGKILL") throw new Error(`the server did not stop:\n${log()}`);
  };

  const late = setTimeout(() => child.kill("SIGKILL"), 50_000);
  const printed = await untilPrinted(/"general":"(.*?)","answers":"(.*?)\/?"/).catch(
    async (error: unknown) => {
      await stop().catch(() => undefined);
      throw error;
    },
  );
  clearTimeout(late);
  const [, baseUrl, askUrl] = printed as unknown as [string, string, string];
  const { origin } = new URL(baseUrl);
  return {
    target: { ...keys, baseUrl, askUrl, origin, chatBot, isOurs: true },
    child,
    directory,
    log,
    stop,
  };
};

/** Launches a server for the tests of a file or group, and returns a function that returns it. */
export const launchForTests = (...options: Parameters<typeof launch>) => {
  let testServer: TestServer;
  beforeAll(async () => {
    testServer = await launch(...options);
  });
  afterAll(() => testServer?.stop());
  return () => testServer;
};
