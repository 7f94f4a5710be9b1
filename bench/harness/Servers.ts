/**
 * The servers that are compared: each with a database of its own in the same PostgreSQL, one chatbot, one key, the same
 * chats.
 */
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { Effect, Redacted } from "effect";
import { freePort } from "../../apps/server/test/FreePort.ts";
import { instantQuestion } from "../servers/answers.ts";
import { afterAll, own } from "./Children.ts";
import { call, dataOf } from "./Http.ts";
import type { Postgres } from "./Postgres.ts";

export type ServerName =
  | "floor"
  | "fastify"
  | "care"
  | "mastra"
  | "against"
  | "parley"
  | "row-security";

export interface Server {
  readonly name: ServerName;
  readonly port: number;
  readonly pid: number;
  readonly key: string;
  readonly chats: ReadonlyArray<number>;
  /** The id of the long chat. */
  readonly longChat: number;
  readonly stop: () => Promise<void>;
}

/**
 * Chats that there are before the first round. Far from none: what PostgreSQL plans for a table of one page (also for
 * the check of a foreign key) it keeps while the table grows under load.
 */
const chats = 5000;

/** Entries of the long chat, its hello entry included. */
const longChatLength = 200;

const chatbot = {
  workspace: "Bench",
  name: "Bench bot",
  description: "Answers questions while it is measured.",
  helloMessage: "Hello! What would you like to know?",
};

const pathOf = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const thisCheckout = pathOf("../..");
const mainOf = (checkout: string) => join(resolve(checkout), "apps/server/src/main.ts");

/** An API key, of every server. */
const key = execFileSync(process.execPath, [mainOf(thisCheckout), "key", "generate"], {
  encoding: "utf8",
}).trim();

/** Starts a server's process, and waits until it accepts the key; what it prints on its error stream is shown. */
const startNode = async (
  name: ServerName,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>,
  port: number,
): Promise<Server> => {
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], NODE_ENV: "production", ...env },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const stop = own(name, child, "SIGTERM");
  const server = { name, port, pid: child.pid!, key, chats: [1], longChat: 1, stop };
  for (let tries = 1; ; tries++) {
    try {
      const { status } = await call(server, { method: "GET", path: "/api/details" });
      if (status === 200) return server;
      throw new Error(`details were answered ${status}`);
    } catch (cause) {
      if (tries === 300) throw new Error(`${name} is not ready after 30 s.`, { cause });
      await sleep(100);
    }
  }
};

/** Makes chats by requests; gives their ids. */
const createChats = async (server: Server): Promise<ReadonlyArray<number>> => {
  const body = { name: "Chat", userRef: "u-1" };
  const ids: Array<number> = [];
  let left = chats;
  const createSome = async () => {
    while (left-- > 0) {
      ids.push((await dataOf(server, { method: "POST", path: "/api/chats", body })).id);
    }
  };
  await Promise.all(Array.from({ length: 32 }, createSome));
  return ids;
};

/** Gives a server its chats. The last one becomes long if asks are answered at once. */
const fill = async (server: Server, { modelUrl }: SetUp): Promise<Server> => {
  const [longChat, ...chats] = (await createChats(server)).toReversed();
  const body = { chat_id: longChat, query: instantQuestion };
  for (let length = 1; modelUrl === null && length < longChatLength; length++) {
    await dataOf(server, { method: "POST", path: "/ask/", body });
  }
  return { ...server, chats: chats.toReversed(), longChat: longChat! };
};

export interface SetUp {
  readonly postgres: Postgres;
  /** The language model that answers; `null`: the answerers that all servers have. */
  readonly modelUrl: string | null;
  /** The file to which a server writes a CPU profile when it stops; absent: none. */
  readonly profile?: string;
}

interface ParleyOptions {
  readonly name: ServerName;
  readonly checkout: string;
  readonly databaseUrl: string;
  /** Further settings. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** Starts the server of a checkout. */
const startParley = async (
  { modelUrl, profile }: SetUp,
  { checkout, databaseUrl, name, settings }: ParleyOptions,
): Promise<Server> => {
  const directory = mkdtempSync(join(tmpdir(), "parley-bench-"));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  const provision = join(directory, "provision.json");
  const scopes = ["read", "write", "ask"];
  writeFileSync(provision, JSON.stringify({ chatbots: [{ ...chatbot, keys: [{ key, scopes }] }] }));
  // Without documents of its own it would load those of the project.
  const knowledge = join(directory, "knowledge");
  mkdirSync(knowledge);
  writeFileSync(join(knowledge, "benchmark.md"), "# Benchmark\n\nNobody reads this.\n");
  const port = await freePort();
  const args = [
    ...(profile === undefined
      ? []
      : [
          "--cpu-prof",
          `--cpu-prof-dir=${dirname(profile)}`,
          `--cpu-prof-name=${basename(profile)}`,
        ]),
    `--import=${new URL("../servers/parley.ts", import.meta.url)}`,
    mainOf(checkout),
    "serve",
  ];
  const env = {
    DATABASE_URL: databaseUrl,
    PARLEY_STORE: "postgres",
    PARLEY_PORT: String(port),
    PARLEY_MANAGEMENT_PORT: "0",
    PARLEY_DRAIN_DELAY: "0 seconds",
    PARLEY_PROVISION: provision,
    ...(modelUrl === null
      ? { PARLEY_KNOWLEDGE_DIR: knowledge }
      : { PARLEY_LLM_BASE_URL: modelUrl, PARLEY_LLM_MODEL: "m" }),
    ...settings,
  };
  return startNode(name, args, env, port);
};

/** Parley whose role is bound by the policies of row security. */
const startWithRowSecurity = async (setUp: SetUp): Promise<Server> => {
  const { createDatabase, createRole, run } = setUp.postgres;
  const { migratePostgres } = await import("../../packages/store-pg/src/index.ts");
  const { grantsTo } = await import("../../packages/store-pg/test/grants.ts");
  const url = await createDatabase("row_security");
  await Effect.runPromise(migratePostgres({ url: Redacted.make(url) }));
  const asBound = await createRole("parley_bound");
  for (const statement of grantsTo("parley_bound", "parley")) await run(url, statement);
  return startParley(setUp, {
    name: "row-security",
    checkout: thisCheckout,
    databaseUrl: asBound(url),
    settings: { PARLEY_ROW_SECURITY: "true" },
  });
};

const startFastify = async (
  { modelUrl, postgres: { createDatabase, run } }: SetUp,
  name: "fastify" | "care",
): Promise<Server> => {
  const databaseUrl = await createDatabase(name);
  await run(databaseUrl, readFileSync(pathOf("../servers/schema.sql"), "utf8"));
  const { description, helloMessage, name: chatbotName, workspace } = chatbot;
  await run(
    databaseUrl,
    `WITH chatbot AS (
       INSERT INTO chatbots (workspace_name, name, description, hello_message)
       VALUES ($1, $2, $3, $4) RETURNING id
     )
     INSERT INTO api_keys (hash, chatbot_id) SELECT $5, id FROM chatbot`,
    [workspace, chatbotName, description, helloMessage, createHash("sha256").update(key).digest()],
  );
  const port = await freePort();
  const env = {
    DATABASE_URL: databaseUrl,
    PORT: String(port),
    ...(modelUrl !== null && { MODEL_URL: modelUrl }),
    ...(name === "care" && { CARE: "1" }),
  };
  return startNode(name, [pathOf("../servers/fastify.ts")], env, port);
};

/** Installs Mastra first: 280 MB that nobody else needs. */
const startMastra = async ({ modelUrl, postgres }: SetUp): Promise<Server> => {
  const folder = pathOf("../mastra");
  if (!existsSync(join(folder, "node_modules"))) {
    execFileSync("npm", ["ci", "--no-audit", "--no-fund"], { cwd: folder, stdio: "inherit" });
  }
  const port = await freePort();
  const env = {
    DATABASE_URL: await postgres.createDatabase("mastra"),
    PORT: String(port),
    MODEL_URL: modelUrl!,
    MASTRA_TELEMETRY_DISABLED: "1",
  };
  return startNode("mastra", [join(folder, "server.ts")], env, port);
};

const startFloor = async (): Promise<Server> => {
  const port = await freePort();
  return startNode("floor", [pathOf("../servers/floor.ts")], { PORT: String(port) }, port);
};

/** Starts a server with its chats. `against` is the other checkout. */
export const startServer = async (
  name: ServerName,
  setUp: SetUp,
  against: string | undefined,
): Promise<Server> => {
  switch (name) {
    case "floor":
      return startFloor();
    case "fastify":
    case "care":
      return fill(await startFastify(setUp, name), setUp);
    case "mastra":
      return fill(await startMastra(setUp), setUp);
    case "row-security":
      return fill(await startWithRowSecurity(setUp), setUp);
    case "against":
    case "parley": {
      const checkout = name === "parley" ? thisCheckout : against!;
      const databaseUrl = await setUp.postgres.createDatabase(name);
      return fill(await startParley(setUp, { name, checkout, databaseUrl }), setUp);
    }
  }
};
