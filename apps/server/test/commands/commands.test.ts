import * as NodeServices from "@effect/platform-node/NodeServices";
import * as PgClient from "@effect/sql-pg/PgClient";
import { ChatbotRegistry, ChatStore, defaultSettings, newestChats, TurnStore } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Redacted, Stream } from "effect";
import { Reactivity } from "effect/reactivity";
import { execFileSync, spawn } from "node:child_process";
import {
  chmod,
  lstat,
  mkdtemp,
  open,
  readdir,
  readFile,
  rm,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { once } from "node:events";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { text as readAll } from "node:stream/consumers";
import { setTimeout } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { writeWhole } from "../../src/commands/WholeFile.ts";
import { here, oneLineAndHint } from "./here.ts";
import { withoutSettings } from "../withoutSettings.ts";
import { main, run } from "./run.ts";

declare module "vitest" {
  interface ProvidedContext {
    postgresUrl: string;
  }
}

/** Of its own, because erasures wait for all that goes on in theirs. */
const database = `commands_${process.pid}`;
const inDatabase = (url: string) => Object.assign(new URL(url), { pathname: `/${database}` }).href;
const owner = () => inDatabase(inject("postgresUrl"));
const query = <Row extends object>(url: string, text: string): Promise<ReadonlyArray<Row>> =>
  PgClient.make({ url: Redacted.make(url) }).pipe(
    Effect.flatMap((sql) => sql.unsafe<Row>(text)),
    Effect.provide(Reactivity.layer),
    Effect.scoped,
    Effect.runPromise,
  );

const settings = () => ({ DATABASE_URL: owner() });
const parley = (...args: ReadonlyArray<string>) => here(args, settings());

type Stores = ChatStore | TurnStore | ChatbotRegistry;
const withStores = <A, E>(effect: Effect.Effect<A, E, Stores>): Promise<A> =>
  effect.pipe(Effect.provide(layerPostgres({ url: Redacted.make(owner()) })), Effect.runPromise);

const chatbot = (name: string) => ({
  workspaceName: "Workspace",
  name,
  description: "",
  settings: defaultSettings,
  keys: [],
});

const totalOf = (id: number) =>
  withStores(
    ChatStore.use((store) => Effect.map(store.listChats(id, newestChats), ({ total }) => total)),
  );

/** The tables that were vacuumed by a command. */
const vacuumed = async (): Promise<ReadonlyArray<string>> => {
  const rows = await query<{ readonly relname: string }>(
    owner(),
    "select relname from pg_stat_user_tables where last_vacuum is not null order by relname",
  );
  return rows.map(({ relname }) => relname);
};

let directory: string;
let full: number;
let empty: number;

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-commands-"));
  await query(inject("postgresUrl"), `create database ${database}`);
  const ids = await withStores(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const full = (yield* registry.create(chatbot("Full"), "test")).id;
      const empty = (yield* registry.create(chatbot("Empty"), "test")).id;
      const store = yield* ChatStore;
      const turns = yield* TurnStore;
      for (let n = 0; n < 12; n++) {
        const { chat } = yield* store.createChat(
          full,
          { name: `Chat ${n} 😀`, userRef: n % 2 === 0 ? "even" : "odd", helloMessage: "Hello" },
          null,
        );
        const taken = yield* turns.take(full, chat.id, null);
        if (taken._tag !== "Turn") continue;
        yield* turns.append(taken.turn, {
          question: "q",
          answer: 'a\n"b"',
          moderation: "none",
          flagged: false,
          usage: {
            provider: "p",
            model: "m",
            promptTokens: 3,
            completionTokens: 4,
            attempts: 1,
            latencyMillis: 5,
          },
        });
      }
      return { full, empty };
    }),
  );
  // Lets the server's role in.
  await parley("migrate");
  full = ids.full;
  empty = ids.empty;
}, 60_000);

afterAll(async () => {
  await query(inject("postgresUrl"), `drop database ${database}`);
  await rm(directory, { recursive: true, force: true });
});

describe("parley chats", () => {
  it("exports and imports with the same ids and times, through files and pipes", async () => {
    const file = join(directory, "chats.ndjson");
    const exported = await run(
      ["chats", "export", "--chatbot", "Full", "--output", file],
      settings(),
    );
    expect(exported).toMatchObject({ code: 0, stdout: "" });
    const text = await readFile(file, "utf8");
    expect(text.trimEnd().split("\n")).toHaveLength(37);
    expect(text).toMatch(/\n\{"end":\{"chats":12,"entries":24\}\}\n$/);
    const imported = await run(["chats", "import", "--chatbot", String(empty)], settings(), text);
    expect(imported).toMatchObject({ code: 0, stdout: "Imported 12 chats.\n" });
    const again = await run(["chats", "export", "--chatbot", "Empty"], settings());
    expect(again.stdout).toBe(text);

    const refused = await parley("chats", "import", "--chatbot", "Empty", "--input", file);
    expect(refused.code).toBe(1);
    expect(refused.stderr).toBe(
      "parley: The import was refused, and nothing was written: the chatbot has chats.\n" +
        'hint: "parley chats import --help" says what can be imported.\n',
    );
  });

  it("takes - for the standard streams, and says why a file cannot be used", async () => {
    const { stdout } = await parley("chats", "export", "--chatbot", "Full", "--output", "-");
    expect(stdout).toMatch(/\{"end":\{"chats":12,"entries":24\}\}\n$/);
    const args = ["chats", "import", "--chatbot", "Full", "--input", "-"];
    const refused = await here(args, settings(), stdout);
    expect(refused.stderr).toContain("the chatbot has chats.");
    const erased = await parley("chats", "erase", "--chatbot", "Empty", "--idle-since", "0s");
    expect(erased).toMatchObject({ code: 0, stdout: "Erased 12 chats.\n" });
    for (const [way, name, flag, path, reason] of [
      ["export", "Full", "--output", "/dev/full", "ENOSPC: no space left on device, write"],
      ["import", "Empty", "--input", directory, "EISDIR: illegal operation on a directory, read"],
    ] as const) {
      const { code, stderr } = await parley("chats", way, "--chatbot", name, flag, path);
      expect({ code, stderr }).toEqual({ code: 1, stderr: expect.stringContaining(reason) });
    }
  });

  it("reads and writes pipes that are named", async () => {
    const pipe = join(directory, "pipe");
    execFileSync("mkfifo", [pipe]);
    const read = readFile(pipe, "utf8");
    const exported = await parley("chats", "export", "--chatbot", "Full", "--output", pipe);
    expect(exported).toMatchObject({ code: 0 });
    const text = await read;
    expect(text).toMatch(/\{"end":\{"chats":12,"entries":24\}\}\n$/);
    const wrote = writeFile(pipe, text);
    const refused = await parley("chats", "import", "--chatbot", "Full", "--input", pipe);
    expect(refused.stderr).toContain("the chatbot has chats.");
    await wrote;
    // Nobody comes to the other end.
    const ends = ["export --output", "import --input"].map(async (words) => {
      const lonely = join(directory, words);
      execFileSync("mkfifo", [lonely]);
      const args = [main, "chats", ...words.split(" "), lonely, "--chatbot", "Empty"];
      const env = { ...withoutSettings(), ...settings() };
      const endedAfter = async (millis: number) => {
        const child = spawn(process.execPath, args, { env, stdio: "ignore" });
        const ended = once(child, "exit");
        await setTimeout(millis);
        child.kill("SIGTERM");
        return ended;
      };
      const [code, signal] = await endedAfter(4_000);
      // One that did not wait yet ends in another way.
      return signal === "SIGINT" ? [code, signal] : endedAfter(15_000);
    });
    // As which a shell gives 130.
    const killed = [null, "SIGINT"];
    expect(await Promise.all(ends)).toEqual([killed, killed]);
  }, 60_000);

  it("fails when what it prints is lost, and tells of a defect on standard error alone", async () => {
    const full = await open("/dev/full", "w");
    const lost = spawn(process.execPath, [main, "usage", "--chatbot", "Full"], {
      env: { ...withoutSettings(), ...settings() },
      stdio: ["ignore", full.fd, "pipe"],
    });
    expect(await readAll(lost.stderr!)).toContain(
      "Standard input or output cannot be used: ENOSPC: no space left on device, write",
    );
    const code = `JSON.stringify=()=>{throw new TypeError("no JSON today")}`;
    const options = `--import data:text/javascript,${encodeURIComponent(code)}`;
    const args = ["usage", "--chatbot", "Full", "--json"];
    const ran = await run(args, { ...settings(), NODE_OPTIONS: options });
    expect(ran).toMatchObject({ code: 1, stdout: "" });
    expect(ran.stderr).toContain("no JSON today");
    await full.close();
  });

  it("leaves an export as it was until another is whole", async () => {
    const file = join(directory, "whole.ndjson");
    const link = join(directory, "link.ndjson");
    await writeFile(file, "before");
    await chmod(file, 0o600);
    await symlink(file, link);
    // What one left that was killed in a container, where every process may have one number.
    await writeFile(`${file}.${process.pid}.part`, "killed");
    const names = await readdir(directory);
    const bytes = Stream.encodeText(Stream.make("so far"));
    const write = (some: Stream.Stream<Uint8Array, string>) =>
      writeWhole(link, some).pipe(Effect.provide(NodeServices.layer), Effect.runPromiseExit);
    expect((await write(Stream.concat(bytes, Stream.fail("lost"))))._tag).toBe("Failure");
    expect(await readFile(file, "utf8")).toBe("before");
    expect(await readdir(directory)).toHaveLength(names.length);
    expect((await write(bytes))._tag).toBe("Success");
    expect(await readFile(file, "utf8")).toBe("so far");
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect((await lstat(link)).isSymbolicLink()).toBe(true);
  });

  it("names the line of an import that is none, and its field, and writes nothing", async () => {
    const good =
      '{"chat":{"id":1,"name":null,"userRef":null,"_createTime":"2026-01-01T00:00:00.000Z"}}';
    const _createTime = "2026-01-01T00:00:00.000Z";
    const texts = { question: "q", answer: "a", moderation: "none", flagged: false };
    const entry = { id: 1, chat_id: 1, ...texts, _createTime };
    const counts = { promptTokens: 1, completionTokens: 1, latencyMillis: 1 };
    const usage = { provider: "p", model: "m", ...counts };
    const chat = { id: 2, name: null, userRef: null, _createTime };
    for (const [bad, field, problem = ""] of [
      ["no JSON", null],
      ["{}", null],
      ['{"message":1}', "message"],
      [{ chat: { ...chat, id: 0 } }, "chat.id"],
      [{ chat: { ...chat, _createTime: "yesterday" } }, "chat._createTime"],
      [{ chat: { ...chat, _createTime: "2026-02-30T00:00:00.000Z" } }, "chat._createTime"],
      [{ chat: { ...chat, userRef: undefined } }, "chat.userRef"],
      [{ chat: { ...chat, createTime: 1 } }, "chat.createTime"],
      [{ chat: { ...chat, "a secret \u001b": 1 } }, null],
      [{ chat: { ...chat, "x: secret \u001b": 1 } }, null],
      [{ chat, entry: null }, "entry"],
      [{ chat, entry: { ...entry, usage: null } }, null],
      [{ entry: { ...entry, usage: { ...usage, attempts: 2 ** 31 } } }, "entry.usage.attempts"],
      [{ entry: { ...entry, answer: 1 } }, "entry.answer", "Expected text"],
      [{ chat: { ...chat, name: "a\u0000secret" } }, "chat.name"],
    ] as const) {
      const file = join(directory, "bad.ndjson");
      await writeFile(
        file,
        `${good}\n${typeof bad === "string" ? bad : JSON.stringify(bad)}\n{"end":{"chats":1,"entries":1}}\n`,
      );
      const refused = await parley("chats", "import", "--chatbot", "Empty", "--input", file);
      expect(refused.code).toBe(1);
      const where = field === null ? "." : `: ${field}: ${problem}`;
      expect(refused.stderr).toContain(`line 2 is no chat and no entry${where}`);
      expect(refused.stderr).not.toContain("secret");
      expect(await totalOf(empty)).toBe(0);
    }
  });

  it("imports nothing that is not UTF-8, has no lines or no order, and says what", async () => {
    const file = join(directory, "bad.ndjson");
    const chat = (id: number) =>
      `{"chat":{"id":${id},"name":"Zürich","userRef":null,"_createTime":"2026-01-01T00:00:00.000Z"}}\n`;
    const end = '{"end":{"chats":2,"entries":0}}\n';
    for (const [bytes, reason] of [
      [Buffer.from(chat(1) + chat(2) + end, "latin1"), "it is not UTF-8"],
      [Buffer.from(chat(1)).subarray(0, -60), "line 1 is no chat and no entry"],
      [Buffer.from("ü").subarray(0, 1), "it is not UTF-8"],
      [Buffer.alloc(2 ** 25, "x"), "a line is too long"],
      [Buffer.from(chat(2) + chat(1) + end), "chat 1: it comes after 2"],
    ] as const) {
      await writeFile(file, bytes);
      const refused = await parley("chats", "import", "--chatbot", "Empty", "--input", file);
      expect(refused.stderr).toContain(`nothing was written: ${reason}.`);
      expect(refused.code).toBe(1);
      expect(await totalOf(empty)).toBe(0);
    }
  });

  it("imports no export that was cut off", async () => {
    const file = join(directory, "cut.ndjson");
    const { stdout } = await parley("chats", "export", "--chatbot", "Full");
    const lines = stdout.trimEnd().split("\n");
    for (const [text, reason] of [
      ["", "it has no end"],
      [lines.slice(0, -1).join("\n"), "it has no end"],
      [
        lines.toSpliced(-2, 1).join("\n"),
        "its end tells of 12 chats and 24 entries, but there are",
      ],
      [[...lines, lines.at(-1)].join("\n"), "line 38 comes after the end"],
    ] as const) {
      await writeFile(file, text);
      const refused = await parley("chats", "import", "--chatbot", "Empty", "--input", file);
      expect(refused.code).toBe(1);
      expect(refused.stderr).toContain(`nothing was written: ${reason}`);
      expect(await totalOf(empty)).toBe(0);
    }
  });

  it("erases one chat, and all of a user", async () => {
    const all = await withStores(ChatStore.use((store) => store.listChats(full, newestChats)));
    const one = await parley(
      "chats",
      "erase",
      "--chatbot",
      "Full",
      "--id",
      String(all.items[0]!.id),
    );
    expect(one).toMatchObject({ code: 0, stdout: "Erased 1 chat.\n", stderr: "" });
    const none = await parley(
      "chats",
      "erase",
      "--chatbot",
      "Full",
      "--id",
      String(all.items[0]!.id),
    );
    expect(none).toMatchObject({ code: 0, stdout: "Erased 0 chats.\n" });
    const user = await parley(
      "chats",
      "erase",
      "--chatbot",
      "Full",
      "--user-ref",
      "even",
      "--quick",
    );
    expect(user).toMatchObject({ code: 0, stdout: "Erased 6 chats.\n" });
    expect(await totalOf(full)).toBe(5);
    expect(await vacuumed()).toEqual(["chat", "entry", "request"]);
  });

  it("erases what nobody used since a time", async () => {
    const time = (day: number) => `2026-01-0${day}T00:00:00.000Z`;
    const chat = (id: number, day: number) =>
      JSON.stringify({ chat: { id, name: null, userRef: null, _createTime: time(day) } });
    const entry = { question: "q", answer: "a", moderation: "none", flagged: false };
    const lines = [
      chat(1, 1),
      chat(2, 2),
      JSON.stringify({ entry: { id: 1, chat_id: 2, ...entry, _createTime: time(4), usage: null } }),
      chat(3, 3),
    ];
    const end = (chats: number) => JSON.stringify({ end: { chats, entries: 1 } });
    const text = `${[...lines, end(3)].join("\n")}\n`;
    expect(await here(["chats", "import", "--chatbot", "Empty"], settings(), text)).toMatchObject({
      code: 0,
    });
    const erase = () => parley("chats", "erase", "--chatbot", "Empty", "--idle-since", time(3));
    expect(await erase()).toEqual({ code: 0, stdout: "Erased 1 chat.\n", stderr: "" });
    expect(await erase()).toMatchObject({ code: 0, stdout: "Erased 0 chats.\n" });
    const left = await parley("chats", "export", "--chatbot", "Empty");
    expect(left.stdout).toBe(`${[...lines.slice(1), end(2)].join("\n")}\n`);
  });

  it("wants to know exactly which chats to erase, and of which chatbot", async () => {
    for (const [code, ...args] of [
      [2, "chats", "erase", "--chatbot", "Full"],
      [2, "chats", "erase", "--chatbot", "Full", "--id", "1", "--user-ref", "u"],
      [1, "chats", "erase", "--id", "1"],
      [1, "chats", "erase", "--chatbot", "Nobody", "--id", "1"],
    ] as const) {
      const refused = await parley(...args);
      expect(refused.code).toBe(code);
      expect(refused.stderr).toMatch(oneLineAndHint);
    }
    expect(await totalOf(full)).toBe(5);
  });
});

describe("parley usage", () => {
  it("sums what answers cost", async () => {
    const { code, stdout } = await parley("usage", "--chatbot", "Full", "--json");
    expect(code).toBe(0);
    expect(JSON.parse(stdout)).toEqual([
      {
        provider: "p",
        model: "m",
        answers: 5,
        attempts: 5,
        promptTokens: 15,
        completionTokens: 20,
      },
    ]);
    const { stdout: table } = await parley("usage", "--chatbot", "Full");
    expect(table).toBe(
      "PROVIDER  MODEL  ANSWERS  ATTEMPTS  PROMPT TOKENS  COMPLETION TOKENS\n" +
        "p         m      5        5         15             20\n",
    );
    const since = await parley("usage", "--chatbot", "Full", "--json", "--since", "2100-01-01");
    expect(JSON.parse(since.stdout)).toEqual([]);
  });
});

describe("parley migrate", () => {
  it("prints the SQL first, and then does it", async () => {
    const fresh = { ...settings(), PARLEY_SCHEMA: "fresh" };
    const plan = await here(["migrate", "--dry-run"], fresh);
    expect(plan.code).toBe(0);
    expect(plan.stdout).toContain("create table chat (");
    expect((await here(["migrate", "--dry-run"], fresh)).stdout).toBe(plan.stdout);
    expect((await here(["migrate"], fresh)).stdout).toBe("The schema was brought up to date.\n");
    expect((await here(["migrate"], fresh)).stdout).toBe("The schema is up to date.\n");
  });
});
