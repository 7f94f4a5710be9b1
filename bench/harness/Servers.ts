/**
 * The servers that are compared. Each except the floor has its own database in the same PostgreSQL, one chatbot, one
 * key and the same number of chats.
 */
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, globSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join, resolve } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { freePort } from "../../apps/server/test/FreePort.ts";
import { instantQuestion } from "../servers/answers.ts";
import { afterAll, own } from "./Children.ts";
import { call, dataOf } from "./Http.ts";
import type { Postgres } from "./Postgres.ts";

/** The servers that can be compared, in the order in which reports list them. */
export const titles = {
  parley: "Parley",
  file: "Parley on a SQLite file",
  fastify: "Fastify",
  care: "Fastify, with care",
  floor: "node:http",
  mastra: "Mastra",
  against: "Parley of the other checkout",
} as const;

export type ServerName = keyof typeof titles;

/** How each server differs from Parley, and what it leaves out. */
export const lacks = {
  fastify:
    "Written by hand with Fastify 5 and `pg`, for this benchmark. Asks of one chat do not take turns, so an answer may not see the entry before it. It ignores `Idempotency-Key`, cannot resume a stream, and keeps no metrics, request ids, limits, moderation or usage. It counts all rows to get the total of a list. A model is the AI SDK's `streamText`, piped to the client, and one INSERT at the end.",
  care: "The same with Parley's care for writes: entries and chats that arrive together share a statement and its commit, and responses of one iteration of the event loop are sent together.",
  floor: "Node's HTTP server alone. It checks no key and stores nothing.",
  mastra:
    "An agent of Mastra behind `node:http`, with its memory in PostgreSQL. It checks no key, and asks of one chat do not take turns; no `Idempotency-Key`, no resuming.",
} as const;

export interface Server {
  readonly name: ServerName;
  readonly port: number;
  readonly pid: number;
  /** The time from starting its process to its first successful response. */
  readonly startMillis: number;
  readonly key: string;
  readonly chats: ReadonlyArray<number>;
  /** The id of the long chat. */
  readonly longChat: number;
  readonly stop: () => Promise<void>;
}

/**
 * The number of chats before the first round. It is large because PostgreSQL keeps the plans that it makes for a
 * one-page table, even those for foreign key checks, while the table grows under load.
 */
const chats = 5000;

/** The timeout for starting a server. */
const startMillis = 30_000;

/** The number of entries in the long chat, including its hello entry. */
const longChatLength = 200;

const chatbot = {
  workspace: "Bench",
  name: "Bench bot",
  description: "Answers questions while it is measured.",
  helloMessage: "Hello! What would you like to know?",
};

const pathOf = (path: string) => fileURLToPath(new URL(path, import.meta.url));
const thisCheckout = pathOf("../..");
const temporary = (): string => {
  const folder = mkdtempSync(join(tmpdir(), "parley-bench-"));
  afterAll(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
};
const mainOf = (checkout: string) => join(resolve(checkout), "apps/server/src/main.ts");

/** The API key for every server. */
const key = execFileSync(process.execPath, [mainOf(thisCheckout), "key", "generate"], {
  encoding: "utf8",
}).trim();

/** So that what is installed runs on this Node. */
const path = `${dirname(process.execPath)}:${process.env["PATH"]}`;

/** Starts a server's process, shows its standard error, and waits until the server accepts the key. */
const startProgram = async (
  name: ServerName,
  port: number,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>,
  file = process.execPath,
): Promise<Server> => {
  const startedAt = performance.now();
  const child = spawn(file, args, {
    env: { PATH: path, HOME: process.env["HOME"], NODE_ENV: "production", ...env },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  const stop = own(name, child, "SIGTERM");
  const server = { name, port, pid: child.pid!, key, chats: [], longChat: 0, stop };
  while (performance.now() - startedAt < startMillis) {
    try {
      const { status, text } = await call(server, { method: "GET", path: "/api/details" });
      if (status === 200) return { ...server, startMillis: performance.now() - startedAt };
      throw new Error(`${name} responded with ${status}: ${text}`);
    } catch (error) {
      if (!(error instanceof TypeError)) throw error;
      // The server is not listening yet.
      await sleep(5);
    }
  }
  throw new Error(`${name} is not ready after ${startMillis} ms.`);
};

/** Creates chats on a server through its API. */
export const createChats = async (server: Server, count: number): Promise<Server> => {
  const body = { name: "Chat", userRef: "u-1" };
  const ids: Array<number> = [];
  let remaining = count;
  const createSome = async () => {
    while (remaining-- > 0) {
      ids.push((await dataOf(server, { method: "POST", path: "/api/chats", body })).id);
    }
  };
  await Promise.all(Array.from({ length: 32 }, createSome));
  return { ...server, chats: ids };
};

/** Creates a long chat on a server, which becomes its newest chat. */
const addLongChat = async (server: Server): Promise<Server> => {
  const [longChat] = (await createChats(server, 1)).chats;
  const body = { chat_id: longChat, query: instantQuestion };
  for (let length = 1; length < longChatLength; length++) {
    await dataOf(server, { method: "POST", path: "/ask/", body });
  }
  return { ...server, longChat: longChat! };
};

/** How asks are answered: by the function in `servers/answers.ts`, by Parley's own documents, or by `Model.ts`. */
export type Answers = "at once" | "from documents" | "by a model";

export interface SetUp {
  readonly postgres: Postgres;
  readonly answers: Answers;
  /** The URL of the language model, if that answers. */
  readonly modelUrl: string | null;
  /** The folder of the other checkout. */
  readonly against: string | undefined;
}

/** Writes the file that provisions Parley's chatbot and its key. */
const provision = (): string => {
  const file = join(temporary(), "provision.json");
  const scopes = ["read", "write", "ask"];
  writeFileSync(file, JSON.stringify({ chatbots: [{ ...chatbot, keys: [{ key, scopes }] }] }));
  return file;
};

/** Installs Parley's server package, built from a checkout, with npm in its own folder; returns the command. */
const installPackage = (checkout: string): string => {
  const folder = temporary();
  const server = join(checkout, "apps/server");
  const run = (command: string, args: ReadonlyArray<string>, cwd: string) =>
    execFileSync(command, args, {
      cwd,
      env: { ...process.env, PATH: path },
      stdio: ["ignore", "ignore", "inherit"],
    });
  run(process.execPath, ["build.ts"], server);
  run("npx", ["--yes", "pnpm@12", "pack", "--pack-destination", folder], server);
  const [tarball] = globSync("*.tgz", { cwd: folder });
  writeFileSync(join(folder, "package.json"), '{ "private": true }');
  run("npm", ["install", "--no-audit", "--no-fund", "--omit=peer", `./${tarball}`], folder);
  return join(folder, "node_modules/.bin/parley");
};

/** Creates the database of a Fastify server; returns its URL. */
const createFastifyDatabase = async ({ createDatabase, run }: Postgres, name: string) => {
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
  return databaseUrl;
};

/** Installs Mastra on first use, because only this server needs its 280 MB; returns its program. */
const installMastra = (): string => {
  const folder = pathOf("../mastra");
  if (!existsSync(join(folder, "node_modules"))) {
    execFileSync("npm", ["install", "--no-package-lock", "--no-audit", "--no-fund"], {
      cwd: folder,
      stdio: "inherit",
    });
  }
  return join(folder, "server.ts");
};

/** Starts a new process of a server, with the same database each time. */
type Start = () => Promise<Server>;

/** Prepares a server: from the checkout or, if `isInstalled`, Parley from its package. */
export const prepareServer = async (
  name: ServerName,
  { against, answers, modelUrl, postgres }: SetUp,
  isInstalled = false,
): Promise<Start> => {
  const port = await freePort();
  const program =
    (args: ReadonlyArray<string>, env: Readonly<Record<string, string>>, file?: string): Start =>
    () =>
      startProgram(name, port, args, { PORT: String(port), ...env }, file);
  const model = modelUrl === null ? {} : { MODEL_URL: modelUrl };
  switch (name) {
    case "floor":
      return program([pathOf("../servers/floor.ts")], {});
    case "mastra": {
      const env = { ...model, MASTRA_TELEMETRY_DISABLED: "1" };
      return program([installMastra()], {
        ...env,
        DATABASE_URL: await postgres.createDatabase(name),
      });
    }
    case "fastify":
    case "care": {
      const env = { ...model, ...(name === "care" && { CARE: "1" }) };
      const databaseUrl = await createFastifyDatabase(postgres, name);
      return program([pathOf("../servers/fastify.ts")], { ...env, DATABASE_URL: databaseUrl });
    }
    case "against":
    case "file":
    case "parley": {
      const checkout = resolve(name === "against" ? against! : thisCheckout);
      const env = {
        PARLEY_PORT: String(port),
        PARLEY_MANAGEMENT_PORT: "0",
        PARLEY_DRAIN_DELAY: "0 seconds",
        PARLEY_PROVISION: provision(),
        ...(name === "file"
          ? { PARLEY_STORE: "sqlite", PARLEY_DATA_DIR: temporary() }
          : { PARLEY_STORE: "postgres", DATABASE_URL: await postgres.createDatabase(name) }),
        ...(modelUrl !== null && { PARLEY_LLM_BASE_URL: modelUrl, PARLEY_LLM_MODEL: "m" }),
      };
      if (isInstalled) return program(["serve"], env, installPackage(checkout));
      // Unless documents answer, this replaces the answerer that quotes them.
      const preload = `--import=${new URL("../servers/parley.ts", import.meta.url)}`;
      const options = answers === "from documents" ? [] : [preload];
      return program([...options, mainOf(checkout), "serve"], env);
    }
  }
};

/** Starts a server with its chats. */
export const startServer = async (name: ServerName, setUp: SetUp): Promise<Server> => {
  const start = await prepareServer(name, setUp);
  const server = await start();
  if (name === "floor") return { ...server, chats: [1], longChat: 1 };
  const serverWithChats = await createChats(server, chats);
  return setUp.answers === "at once" ? addLongChat(serverWithChats) : serverWithChats;
};
