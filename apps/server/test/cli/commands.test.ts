/**
 * Commands about the chats of a chatbot.
 */
import * as NodeServices from "@effect/platform-node/NodeServices";
import { ChatbotRegistry, ChatStore, defaultSettings, newestChats, TurnStore } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Redacted, Stream } from "effect";
import { spawn } from "node:child_process";
import { mkdtemp, open, readdir, readFile, rm, stat, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { text as readAll } from "node:stream/consumers";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { replaceFile } from "../../src/cli/commands/ChatsCommand.ts";
import { withoutSettings } from "../withoutSettings.ts";
import { here } from "./here.ts";
import { main, run } from "./run.ts";

declare module "vitest" {
  interface ProvidedContext {
    postgresUrl: string;
  }
}

const schema = `commands_${process.pid}`;
const settings = () => ({ DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema });
const parley = (line: string, input = "") => here(line.split(" "), settings(), input);

const withStores = <A, E>(
  effect: Effect.Effect<A, E, ChatStore | TurnStore | ChatbotRegistry>,
): Promise<A> =>
  effect.pipe(
    Effect.provide(layerPostgres({ url: Redacted.make(inject("postgresUrl")), schema })),
    Effect.runPromise,
  );

/** How many chats the chatbot has. */
const totalOf = (id: number) =>
  withStores(
    ChatStore.use((store) => Effect.map(store.listChats(id, newestChats), ({ total }) => total)),
  );

/** The newest lines of the audit, oldest first. */
const audited = async (limit: number) => {
  const { stdout } = await parley(`audit --json --limit ${limit}`);
  const lines: ReadonlyArray<Record<string, unknown>> = JSON.parse(stdout);
  return lines
    .map(({ action, actor, chatbotName, detail }) => `${actor} ${action} ${chatbotName} ${detail}`)
    .toReversed();
};
const user = `cli:${userInfo().username}`;

let directory: string;
const keyId = "QSCmEIhoudPA";
/** Twelve chats with two entries each, and none. */
const [full, empty] = [1, 2];

beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-commands-"));
  await withStores(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const key = {
        id: keyId,
        hash: new Uint8Array(32),
        name: "web",
        expiresAt: null,
        ratePerMinute: null,
      };
      for (const name of ["Full", "Empty"]) {
        const chatbot = { workspaceName: "W", name, description: "", settings: defaultSettings };
        const keys = name === "Full" ? [{ ...key, scopes: ["ask"] as const }] : [];
        yield* registry.create({ ...chatbot, keys }, "test");
      }
      const store = yield* ChatStore;
      const turns = yield* TurnStore;
      for (let n = 0; n < 12; n++) {
        const userRef = n % 2 === 0 ? "even" : "odd";
        const { chat } = yield* store.createChat(
          full,
          { name: `Chat ${n} 😀`, userRef, helloMessage: "Hello" },
          null,
        );
        const taken = yield* turns.take(full, chat.id, null);
        if (taken._tag !== "Turn") continue;
        const tokens = { promptTokens: 3, completionTokens: 4, attempts: 1, latencyMillis: 5 };
        yield* turns.append(taken.turn, {
          question: "q",
          answer: 'a\n"b"',
          moderation: "none",
          flagged: false,
          usage: { provider: "p", model: "m", ...tokens },
          keyId: n < 6 ? keyId : null,
        });
      }
    }),
  );
});
afterAll(() => rm(directory, { recursive: true, force: true }));

describe("parley chats", () => {
  it("exports and imports with the same ids and times, through files and pipes, and is audited", async () => {
    const file = join(directory, "chats.ndjson");
    expect(await parley(`chats export --chatbot Full --output ${file}`)).toEqual({
      code: 0,
      stdout: "",
      stderr: "Exported 36 records: chats and their entries.\n",
    });
    const text = await readFile(file, "utf8");
    expect(text.trimEnd().split("\n")).toHaveLength(37);
    expect(text).toMatch(/\n\{"end":\{"chats":12,"entries":24\}\}\n$/);
    const imported = await run(["chats", "import", "--chatbot", "Empty"], settings(), text);
    expect(imported).toEqual({ code: 0, stdout: "Imported 12 chats.\n", stderr: "" });
    await parley("chats erase --chatbot Empty --idle-since 0s");
    expect((await parley(`chats import --chatbot Empty --input ${file}`)).code).toBe(0);
    const again = await run(["chats", "export", "--chatbot", "Empty", "--output", "-"], settings());
    expect(again.stdout).toBe(text);
    expect(await parley(`chats import --chatbot Empty --input ${file}`)).toEqual({
      code: 1,
      stdout: "",
      stderr:
        "parley: The import was refused, and nothing was written: the chatbot has chats.\n" +
        'hint: "parley chats import --help" says what can be imported.\n',
    });
    await parley("chats erase --chatbot Empty --idle-since 0s");
    expect(await totalOf(empty)).toBe(0);
    expect(await audited(6)).toEqual([
      `${user} export Full `,
      `${user} import Empty 12 chats`,
      expect.stringMatching(`^${user} erase Empty 12 chats idle since `),
      `${user} import Empty 12 chats`,
      `${user} export Empty `,
      expect.stringMatching(`^${user} erase Empty 12 chats idle since `),
    ]);
  });

  it("lists, searches and shows chats with exact totals, and texts only with --text", async () => {
    const seen = async (line: string) =>
      JSON.parse((await parley(`chats ${line} --chatbot Full --json`)).stdout);
    const odd = await seen("list --user-ref odd --limit 4 --page 2 --text");
    expect(odd).toMatchObject({
      total: 6,
      chats: [
        { id: 4, userRef: "odd", name: "Chat 3 😀" },
        { id: 2, userRef: "odd", name: "Chat 1 😀" },
      ],
    });
    const { createTime } = odd.chats[1];
    expect(await seen("search T\u00a01")).toEqual({
      total: 3,
      chats: [
        { id: 12, userRef: "odd", createTime: expect.any(String), nameLength: 9 },
        { id: 11, userRef: "even", createTime: expect.any(String), nameLength: 9 },
        { id: 2, userRef: "odd", createTime, nameLength: 8 },
      ],
    });
    const entry = { id: 4, createTime: expect.any(String), flagged: false, moderation: "none" };
    const total = { total: 2 };
    expect(await seen("show 2 --limit 1")).toEqual({
      ...total,
      entries: [{ ...entry, questionLength: 1, answerLength: 5 }],
    });
    expect(await seen("show 2 --limit 1 --text")).toEqual({
      ...total,
      entries: [{ ...entry, question: "q", answer: 'a\n"b"' }],
    });
    const table = (await parley("chats list --chatbot Full --limit 1")).stdout;
    expect(table).toMatch(
      /^ID {2}CREATED +USER REF {2}NAME\n12 {2}\S+Z {2}odd {7}9 characters\n1 of 12 chats\n$/,
    );
    expect((await parley("chats show 2 --chatbot Full")).stdout).not.toContain("Hello");
    expect((await parley("chats show 2 --chatbot Full --text")).stdout).toContain(
      "Hello\n\n2 of 2",
    );
    expect((await parley("chats show 99 --chatbot Full")).code).toBe(1);
    expect((await parley("chats list --limit 101")).code).toBe(2);
  });

  it("says why a file cannot be used, and replaces no device by a file", async () => {
    for (const [command, code, reason] of [
      ["export --chatbot Full --output /dev/null", 2, "/dev/null is not a file."],
      [`import --chatbot Empty --input ${directory}`, 1, "cannot be used"],
    ] as const) {
      const refused = await parley(`chats ${command}`);
      expect(refused).toMatchObject({ code, stderr: expect.stringContaining(reason) });
    }
    expect((await stat("/dev/null")).isCharacterDevice()).toBe(true);
  });

  it("leaves an export as it was until another is whole", async () => {
    const file = join(directory, "whole.ndjson");
    await writeFile(file, "before");
    const names = await readdir(directory);
    const bytes = Stream.encodeText(Stream.make("after"));
    const write = (some: Stream.Stream<Uint8Array, string>) =>
      replaceFile(file, some).pipe(Effect.provide(NodeServices.layer), Effect.runPromiseExit);
    expect((await write(Stream.concat(bytes, Stream.fail("lost"))))._tag).toBe("Failure");
    expect(await readFile(file, "utf8")).toBe("before");
    expect((await write(bytes))._tag).toBe("Success");
    expect(await readFile(file, "utf8")).toBe("after");
    expect((await stat(file)).mode & 0o777).toBe(0o600);
    expect(await readdir(directory)).toEqual(names);
  });

  it("refuses an import that is wrong or was cut off, says where, and writes nothing", async () => {
    const _createTime = "2026-01-01T00:00:00.000Z";
    const line = (record: object) => `${JSON.stringify(record)}\n`;
    const chat = (id: number, more: object = {}) =>
      line({ chat: { id, name: "Zürich", userRef: null, _createTime, ...more } });
    const end = line({ end: { chats: 2, entries: 0 } });
    for (const [bytes, reason] of [
      [`${chat(1)}no JSON\n${end}`, "line 2 is neither a chat nor an entry."],
      [chat(1) + chat(2, { name: "a\0secret" }) + end, "neither a chat nor an entry: chat.name: "],
      [chat(1) + chat(2, { "a secret \u001b": 1 }) + end, "line 2 is neither a chat nor an entry."],
      [chat(2) + chat(1) + end, "chat 1: its id is not greater than 2."],
      [Buffer.from(chat(1), "latin1"), "it is not UTF-8."],
      [chat(1) + chat(2), "its last line is missing"],
      [chat(1) + end, "its last line counts 2 chats and 0 entries, but it has"],
      [chat(1) + chat(2) + end + end, "line 4 follows the last line"],
    ] as const) {
      const file = join(directory, "bad.ndjson");
      await writeFile(file, bytes);
      const refused = await parley(`chats import --chatbot Empty --input ${file}`);
      expect(refused).toMatchObject({ code: 1, stderr: expect.stringContaining(reason) });
      expect(refused.stderr).not.toContain("secret");
    }
    expect(await totalOf(empty)).toBe(0);
  });

  it("erases one chat, all of a user, and idle ones, and is audited", async () => {
    const all = await withStores(ChatStore.use((store) => store.listChats(full, newestChats)));
    const { id } = all.items[0]!;
    for (const [which, erased] of [
      [`--id ${id}`, "1 chat"],
      [`--id ${id}`, "0 chats"],
      ["--user-ref even", "6 chats"],
      ["--idle-since 2026-01-01", "0 chats"],
    ] as const) {
      expect(await parley(`chats erase --chatbot Full ${which}`)).toEqual({
        code: 0,
        stdout: `Erased ${erased}.\n`,
        stderr: "",
      });
    }
    expect(await totalOf(full)).toBe(5);
    expect(await audited(2)).toEqual([
      `${user} erase Full chat ${id}`,
      `${user} erase Full 6 chats of a userRef`,
    ]);
  });
});

it("parley usage sums the tokens of answers", async () => {
  const { code, stdout } = await parley("usage --chatbot Full");
  expect({ code, stdout }).toEqual({
    code: 0,
    stdout:
      "PROVIDER  MODEL  ANSWERS  ATTEMPTS  PROMPT TOKENS  COMPLETION TOKENS\n" +
      "p         m      5        5         15             20\n",
  });
  const sums = { answers: 5, attempts: 5, promptTokens: 15, completionTokens: 20 };
  const json = await parley("usage --chatbot Full --json");
  expect(JSON.parse(json.stdout)).toEqual([{ provider: "p", model: "m", ...sums }]);
  for (const [by, rows] of [
    ["day", [{ day: expect.stringMatching(/^\d{4}-\d\d-\d\d$/) }]],
    ["key", [{ key: keyId }, { key: null }]],
    ["user-ref", [{ userRef: "odd" }]],
  ] as const) {
    const grouped = JSON.parse((await parley(`usage --chatbot Full --json --by ${by}`)).stdout);
    expect(grouped).toMatchObject(rows);
    const answers = grouped.map((sum: typeof sums) => sum.answers);
    expect(answers.reduce((all: number, one: number) => all + one)).toBe(5);
  }
  expect((await parley("usage --chatbot Full --by key")).stdout).toMatch(
    new RegExp(`^KEY +PROVIDER .*\\nprl_${keyId} web +p .*\\n- +p .*\\n$`),
  );
  const since = await parley("usage --chatbot Full --json --since 2100-01-01");
  expect(JSON.parse(since.stdout)).toEqual([]);
});

it("a command fails when its output is lost, and prints a defect on standard error alone", async () => {
  const device = await open("/dev/full", "w");
  const lost = spawn(process.execPath, [main, "usage", "--chatbot", "Full"], {
    env: { ...withoutSettings(), ...settings() },
    stdio: ["ignore", device.fd, "pipe"],
  });
  expect(await readAll(lost.stderr!)).toContain("ENOSPC: no space left on device, write");
  const code = `JSON.stringify=()=>{throw new TypeError("no JSON today")}`;
  const options = `--import data:text/javascript,${encodeURIComponent(code)}`;
  const args = ["usage", "--chatbot", "Full", "--json"];
  const ran = await run(args, { ...settings(), NODE_OPTIONS: options });
  expect(ran).toMatchObject({ code: 1, stdout: "" });
  expect(ran.stderr).toContain("no JSON today");
  await device.close();
});

it("parley migrate prints the SQL first, and then does it", async () => {
  const fresh = { ...settings(), PARLEY_SCHEMA: `${schema}_fresh` };
  for (const _ of [1, 2]) {
    const plan = await here(["migrate", "--dry-run"], fresh);
    expect(plan).toMatchObject({ code: 0, stdout: expect.stringContaining("create table chat (") });
  }
  expect((await here(["migrate"], fresh)).stdout).toBe("The schema was brought up to date.\n");
  expect((await here(["migrate"], fresh)).stdout).toBe("The schema is up to date.\n");
});
