/**
 * Runs the real server in its own process and on its own ports, provisioned and with an empty store.
 */
import { generateKey } from "@parley/core";
import { Effect, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import { spawn, type ChildProcess } from "node:child_process";
import { once } from "node:events";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { main } from "../cli/run.ts";
import { withoutSettings } from "../withoutSettings.ts";
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

const freshKey = Effect.map(generateKey, Redacted.value);
const freshKeys = Effect.all({
  key: freshKey,
  readKey: freshKey,
  writeKey: freshKey,
  askKey: freshKey,
  deleteKey: freshKey,
  postKey: freshKey,
  fullKey: freshKey,
  otherKey: freshKey,
  noHelloKey: freshKey,
  budgetedKey: freshKey,
  limitedKey: freshKey,
  expiredKey: freshKey,
  unknownKey: freshKey,
}).pipe(Effect.provide(SecureRandom.layerWebCrypto));

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
  const everything = ["read", "write", "ask"];
  const visitors = { visitors: true, visitorRatePerMinute: null };
  const provision = join(directory, "provision.json");
  await writeFile(
    provision,
    JSON.stringify({
      chatbots: [
        {
          workspace: chatBot.workspaceName,
          name: chatBot.name,
          description: chatBot.description,
          helloMessage: chatBot.helloMessage,
          moderationErrorMessage: chatBot.moderationErrorMessage,
          ...fields,
          keys: [
            {
              key: keys.key,
              scopes: everything,
              expiresAt: "2999-01-01T00:00:00.000Z",
              ...visitors,
            },
            { key: keys.readKey, scopes: ["read"], ...visitors },
            { key: keys.writeKey, scopes: ["write"] },
            { key: keys.askKey, scopes: ["ask"] },
            { key: keys.deleteKey, scopes: ["delete"] },
            { key: keys.postKey, scopes: ["post"] },
            { key: keys.fullKey, scopes: [...everything, "delete", "post"], ...visitors },
            { key: keys.limitedKey, scopes: ["read"], ratePerMinute: 2 },
            {
              key: keys.budgetedKey,
              scopes: everything,
              visitors: true,
              visitorRatePerMinute: 1000,
              tokensPerDay: 1000,
            },
            { key: keys.expiredKey, scopes: everything, expiresAt: "2001-01-01T00:00:00.000Z" },
          ],
        },
        {
          workspace: "Workspace B",
          name: "Other bot",
          description: "Belongs to somebody else",
          keys: [{ key: keys.otherKey, scopes: everything }],
        },
        {
          workspace: "Workspace B",
          name: "Silent bot",
          keys: [{ key: keys.noHelloKey, scopes: everything }],
        },
      ],
    }),
  );

  const child = spawn(process.execPath, [main, "serve"], {
    cwd: directory,
    stdio: ["ignore", "pipe", "pipe"],
    env: {
      ...withoutSettings(),
      PARLEY_STORE: store,
      PARLEY_DATA_DIR: join(directory, "data"),
      PARLEY_PORT: "0",
      PARLEY_MANAGEMENT_PORT: "0",
      PARLEY_PROVISION: provision,
      PARLEY_KNOWLEDGE_DIR: knowledge,
      ...extra,
    },
  });
  const exit = once(child, "exit");
  // An interrupted test run must not leave a server running.
  const end = () => child.kill("SIGINT");
  process.once("exit", end);
  let output = "";
  let baseUrl: string | undefined;
  let askUrl: string | undefined;
  const ready = new Promise<void>((resolve) => {
    const read = (chunk: Buffer) => {
      output += chunk.toString();
      // The output is plain text, or a log in JSON.
      baseUrl = /(?:^General interface\s+|"general":")(http[^\s"]+?)\/?(?:"|\s*$)/m.exec(
        output,
      )?.[1];
      askUrl = /(?:^Answers interface\s+|"answers":")(http[^\s"]+?)\/?(?:"|\s*$)/m.exec(
        output,
      )?.[1];
      if (baseUrl !== undefined && askUrl !== undefined) resolve();
    };
    child.stdout.on("data", read);
    child.stderr.on("data", read);
  });

  const stop = async () => {
    const deadline = setTimeout(() => child.kill("SIGKILL"), 20_000);
    child.kill("SIGINT");
    await exit;
    process.off("exit", end);
    clearTimeout(deadline);
    await rm(directory, { recursive: true, force: true });
    if (child.signalCode === "SIGKILL") throw new Error(`the server did not stop:\n${output}`);
  };

  const deadline = new Promise<string>((resolve) => {
    setTimeout(() => resolve("was not ready in time"), 50_000).unref();
  });
  const ended = exit.then(() => "ended");
  const reason = await Promise.race([ready, ended, deadline]);
  if (reason !== undefined || baseUrl === undefined || askUrl === undefined) {
    await stop().catch(() => undefined);
    throw new Error(`the server ${reason}:\n${output}`);
  }
  return {
    target: { ...keys, baseUrl, askUrl, origin: new URL(baseUrl).origin, chatBot, isOurs: true },
    child,
    directory,
    log: () => output,
    stop,
  };
};
