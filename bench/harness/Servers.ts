/**
 * The two servers that are compared: each with a database of its own in the same PostgreSQL, one
 * chatbot, one key, and one long chat.
 */
import pg from "pg";
import { execFileSync, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { basename, dirname, join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { afterAll, own } from "./Children.ts";
import { freePort } from "../../apps/server/test/FreePort.ts";
import { call, dataOf } from "./Http.ts";

export interface Running {
  readonly name: string;
  readonly port: number;
  readonly key: string;
  /** The id of the long chat. */
  readonly longChat: number;
  readonly stop: () => Promise<void>;
}

/**
 * Chats that there are before the first round. Far from none: what PostgreSQL plans for a table of one
 * page (also for the check of a foreign key) it keeps while the table grows under load.
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

/** Starts a server's process; what it prints on its error stream is shown. */
const startNode = (
  name: string,
  args: ReadonlyArray<string>,
  env: Readonly<Record<string, string>>,
): (() => Promise<void>) => {
  const child = spawn(process.execPath, args, {
    env: { PATH: process.env["PATH"], HOME: process.env["HOME"], NODE_ENV: "production", ...env },
    stdio: ["ignore", "pipe", "inherit"],
    detached: true,
  });
  return own(name, child, "SIGTERM");
};

/** Waits until a server accepts its key, 30 s at most. */
const ready = async (name: string, port: number, key: string): Promise<void> => {
  for (let tries = 1; ; tries++) {
    try {
      const { status } = await call(port, "GET", "/api/details", key);
      if (status === 200) return;
      throw new Error(`details were answered ${status}`);
    } catch (cause) {
      if (tries === 300) throw new Error(`${name} is not ready after 30 s.`, { cause });
      await sleep(100);
    }
  }
};

/** Makes the chats; gives the last one's id. */
const createChats = async (port: number, key: string): Promise<number> => {
  const create = async (): Promise<number> =>
    (await dataOf(port, "POST", "/api/chats", key, { name: "Chat", userRef: "u-1" })).id;
  let left = chats - 1;
  const createSome = async () => {
    while (left-- > 0) await create();
  };
  await Promise.all(Array.from({ length: 32 }, createSome));
  return create();
};

export interface ParleyOptions {
  readonly store: "postgres" | "memory";
  readonly databaseUrl: string;
  /** The file to write a CPU profile to when the server stops. */
  readonly profile: string | null;
  /** Further settings. */
  readonly settings?: Readonly<Record<string, string>>;
}

/** Its long chat is made as any is: by asking. */
export const startParley = async ({
  databaseUrl,
  profile,
  settings = {},
  store,
}: ParleyOptions): Promise<Running> => {
  const main = pathOf("../../apps/server/src/main.ts");
  const generate = [main, "key", "generate"];
  const key = execFileSync(process.execPath, generate, { encoding: "utf8" }).trim();
  const directory = mkdtempSync(join(tmpdir(), "parley-bench-"));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  const provision = join(directory, "provision.json");
  const scopes = ["read", "write", "ask"];
  writeFileSync(provision, JSON.stringify({ chatbots: [{ ...chatbot, keys: [{ key, scopes }] }] }));
  // One short document, so that all answers are the same.
  const knowledge = join(directory, "knowledge");
  mkdirSync(knowledge);
  writeFileSync(
    join(knowledge, "benchmark.md"),
    "# Benchmark\n\nThe benchmark asks one question again and again, and this is its answer.\n",
  );
  const port = await freePort();
  const profiling =
    profile === null
      ? []
      : [
          "--cpu-prof",
          `--cpu-prof-dir=${dirname(profile)}`,
          `--cpu-prof-name=${basename(profile)}`,
        ];
  const stop = startNode("Parley", [...profiling, main, "serve"], {
    DATABASE_URL: databaseUrl,
    PARLEY_STORE: store,
    PARLEY_PORT: String(port),
    PARLEY_MANAGEMENT_PORT: "0",
    PARLEY_DRAIN_DELAY: "0 seconds",
    PARLEY_PROVISION: provision,
    PARLEY_KNOWLEDGE_DIR: knowledge,
    ...settings,
  });
  await ready("Parley", port, key);
  const longChat = await createChats(port, key);
  const query = "What does the benchmark ask again and again?";
  for (let length = 1; length < longChatLength; length++) {
    await dataOf(port, "POST", "/ask/", key, { chat_id: longChat, query });
  }
  return { name: "parley", port, key, longChat, stop };
};

const historyOf = async ({ key, longChat, port }: Running) => {
  const page = (number: number) =>
    dataOf(port, "GET", `/api/chats/${longChat}/history?orderBy=id&limit=100&page=${number}`, key);
  return [...(await page(1)), ...(await page(2))];
};

/** Starts the peer, whose long chat becomes a copy of Parley's. */
export const startPeer = async (databaseUrl: string, parley: Running): Promise<Running> => {
  const client = new pg.Client({ connectionString: databaseUrl });
  await client.connect();
  try {
    const { key } = parley;
    await client.query(readFileSync(pathOf("../peer/schema.sql"), "utf8"));
    await client.query(
      `WITH chatbot AS (
         INSERT INTO chatbots (workspace_name, name, description, hello_message)
         VALUES ($1, $2, $3, $4) RETURNING id
       )
       INSERT INTO api_keys (hash, chatbot_id) SELECT $5, id FROM chatbot`,
      [
        chatbot.workspace,
        chatbot.name,
        chatbot.description,
        chatbot.helloMessage,
        createHash("sha256").update(key).digest(),
      ],
    );
    const port = await freePort();
    const stop = startNode("The peer", [pathOf("../peer/server.ts")], {
      DATABASE_URL: databaseUrl,
      PORT: String(port),
    });
    await ready("The peer", port, key);
    const longChat = await createChats(port, key);
    const afterHello = (await historyOf(parley)).slice(1);
    await client.query(
      `INSERT INTO entries (chat_id, question, answer)
       SELECT $1, question, answer FROM unnest($2::text[], $3::text[]) AS e (question, answer)`,
      [longChat, afterHello.map((e) => e.question), afterHello.map((e) => e.answer)],
    );
    return { name: "peer", port, key, longChat, stop };
  } finally {
    await client.end();
  }
};
