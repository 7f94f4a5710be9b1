/**
 * Measures the memory of the commands that move chats: imports `entries` entries from a pipe and exports them again,
 * each in its own process. Needs BENCH_DATABASE_URL, the URL of a database in which it creates a schema and later drops
 * it. Exits with code 1 if a command used more than `most` MB, or if the export differs from the import.
 *
 *   BENCH_DATABASE_URL=postgres://… npm run archive -- [--entries 1000000] [--bytes 1000] [--most 200]
 */
import { ChatId } from "@parley/core/ports";
import { withoutSettings } from "../apps/server/test/withoutSettings.ts";
import { encodeArchive } from "../packages/core/src/index.ts";
import type { ArchiveRecord } from "../packages/core/src/ports/index.ts";
import { registerChatbot } from "../packages/core/src/testing/index.ts";
import { layerPostgres } from "../packages/store-pg/src/index.ts";
import { makeMigrationClient } from "../packages/store-pg/src/connections/PgPools.ts";
import { databaseUrl } from "./harness/DatabaseUrl.ts";
import { Effect, Redacted, Stream } from "effect";
import { spawn, type ChildProcess } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";

const { values: options } = parseArgs({
  options: {
    entries: { type: "string", default: "1000000" },
    bytes: { type: "string", default: "1000" },
    most: { type: "string", default: "200" },
  },
});
const [entries, bytes, most] = [options.entries, options.bytes, options.most].map(Number) as [
  number,
  number,
  number,
];
const url = databaseUrl();
const schema = `archive_${Date.now()}`;

const root = new URL("..", import.meta.url);
const scripts = JSON.parse(readFileSync(new URL("package.json", root), "utf8")).scripts;
/** Node's arguments in the `parley` script. */
const command: ReadonlyArray<string> = scripts.parley.split(" ").slice(1);
/** Prints a process's peak memory when it exits. */
const tellPeak = "process.on('exit',()=>console.error('peak '+process.resourceUsage().maxRSS))";

const parley = (...args: ReadonlyArray<string>): ChildProcess =>
  spawn(
    process.execPath,
    ["--import", `data:text/javascript,${encodeURIComponent(tellPeak)}`, ...command, ...args],
    {
      cwd: fileURLToPath(root),
      env: { ...withoutSettings(), DATABASE_URL: Redacted.value(url), PARLEY_SCHEMA: schema },
      stdio: "pipe",
    },
  );

/** Waits for a process to end, prints its peak memory and duration, and returns its peak memory in MB. */
const waitForEnd = async (name: string, child: ChildProcess): Promise<number> => {
  const start = performance.now();
  let output = "";
  child.stderr!.on("data", (data) => (output += data));
  const [code] = await once(child, "close");
  if (code !== 0) throw new Error(`${name} ended with ${code}: ${output}`);
  const peak = (Number(/^peak (\d+)$/m.exec(output)![1]) * 1024) / 1e6;
  const seconds = (performance.now() - start) / 1000;
  console.log(`${name}  ${peak.toFixed(0).padStart(4)} MB  ${seconds.toFixed(1).padStart(5)} s`);
  return peak;
};

/** Yields half of the entries in one chat, and the rest in chats of a hundred. */
function* records(): Generator<ArchiveRecord> {
  const time = (n: number) => new Date(Date.UTC(2026, 0, 1) + n);
  for (let n = 0, chat = 0; n < entries; n++) {
    const opens = n === 0 || (n >= entries / 2 && n % 100 === 0);
    if (opens) {
      chat++;
      yield {
        _tag: "Chat",
        chat: { id: ChatId.make(chat), name: `Chat ${chat}`, userRef: null, createTime: time(n) },
      };
    }
    yield {
      _tag: "Entry",
      entry: {
        id: n + 1,
        chatId: ChatId.make(chat),
        question: `Question ${n}`,
        answer: `${n} `.repeat(bytes).slice(0, bytes),
        moderation: "none",
        flagged: false,
        createTime: time(n),
      },
      usage: null,
    };
  }
}

const chatbot = await Effect.runPromise(
  Effect.provide(registerChatbot, layerPostgres({ url, schema })),
);
try {
  const [inputHash, outputHash] = [createHash("sha256"), createHash("sha256")];
  const importer = parley("chats", "import", "--chatbot", String(chatbot));
  const importPeak = waitForEnd("import", importer);
  // A failure is reported below, once everything is written.
  importPeak.catch(() => {});
  let text = "";
  for await (const line of Stream.toAsyncIterable(encodeArchive(Stream.fromIterable(records())))) {
    text += line;
    if (text.length < 65_536) continue;
    inputHash.update(text);
    if (!importer.stdin!.write(text)) await once(importer.stdin!, "drain");
    text = "";
  }
  inputHash.update(text);
  importer.stdin!.end(text);
  const peaks = [await importPeak];

  const exporter = parley("chats", "export", "--chatbot", String(chatbot));
  exporter.stdout!.on("data", (data) => outputHash.update(data));
  peaks.push(await waitForEnd("export", exporter));
  if (inputHash.digest("hex") !== outputHash.digest("hex")) {
    throw new Error("What was exported is not what was imported.");
  }
  if (Math.max(...peaks) > most) throw new Error(`A command took more than ${most} MB.`);
} finally {
  await Effect.runPromise(
    Effect.scoped(
      Effect.flatMap(makeMigrationClient({ url, schema, maxConnections: 1 }), (sql) =>
        sql.unsafe(`drop schema ${schema} cascade`),
      ),
    ),
  );
}
