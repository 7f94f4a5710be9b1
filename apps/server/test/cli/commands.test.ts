/**
 * Commands for a chatbot's chats and usage, and `migrate`.
 */
import {
  defaultChatQuery,
  defaultEntryQuery,
  defaultSettings,
  plainKey,
  type ChatId,
} from "@parley/core";
import {
  ChatbotId,
  ChatbotRegistry,
  ChatStore,
  helloEntry,
  TurnStore,
  type NewEntry,
} from "@parley/core/ports";
import { layerSqlite } from "@parley/store-sqlite";
import { Effect } from "effect";
import type { SpawnOptions } from "node:child_process";
import { open } from "node:fs/promises";
import { userInfo } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, inject, it } from "vitest";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here, shell } from "./here.ts";
import { main, run, start } from "./run.ts";

const dataDir = temporaryFolder();
const settings = { PARLEY_STORE: "sqlite", PARLEY_DATA_DIR: dataDir };
const { json, parley } = shell(settings);

const withStores = <A, E>(
  effect: Effect.Effect<A, E, ChatStore | TurnStore | ChatbotRegistry>,
): Promise<A> =>
  effect.pipe(Effect.provide(layerSqlite({ file: join(dataDir, "parley.db") })), Effect.runPromise);

/** Takes a turn in a chat or, for `null`, in a new one. */
const takeTurn = (chatbot: ChatbotId, chat: ChatId | null) =>
  TurnStore.use((turns) =>
    Effect.flatMap(turns.take(chatbot, chat, null), (result) =>
      result._tag === "TurnTaken" ? Effect.succeed(result.turn) : Effect.die(result),
    ),
  );

/** How many chats the chatbot has. */
const totalOf = (id: ChatbotId) =>
  withStores(
    ChatStore.use((store) =>
      Effect.map(store.listChats(id, defaultChatQuery), ({ total }) => total),
    ),
  );

/** The newest entries of the audit log, oldest first. */
const auditLines = async (limit: number) => {
  const lines: ReadonlyArray<Record<string, unknown>> = await json(`audit --limit ${limit}`);
  return lines
    .map(({ action, actor, chatbotName, detail }) => `${actor} ${action} ${chatbotName} ${detail}`)
    .toReversed();
};
const user = `cli:${userInfo().username}`;

const keyId = "QSCmEIhoudPA";
/** A chatbot with twelve chats of two entries each, and one without chats. */
const [full, empty] = [ChatbotId.make(1), ChatbotId.make(2)];

beforeAll(async () => {
  await withStores(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const key = { id: keyId, hash: new Uint8Array(32), ...plainKey, name: "web" };
      for (const name of ["Full", "Empty"]) {
        const chatbot = { workspaceName: "W", name, description: "", settings: defaultSettings };
        const keys = name === "Full" ? [{ ...key, scopes: ["ask"] as const }] : [];
        yield* registry.create({ ...chatbot, keys }, "test");
      }
      const store = yield* ChatStore;
      const turns = yield* TurnStore;
      for (let n = 0; n < 12; n++) {
        const userRef = n % 2 === 0 ? "even" : "odd";
        const fields = { name: `Chat ${n} 😀`, userRef, helloMessage: "Hello" };
        const { chat } = yield* store.createChat(full, fields, null);
        const tokens = { promptTokens: 3, completionTokens: 4, attempts: 1, latencyMillis: 5 };
        yield* turns.append(yield* takeTurn(full, chat.id), {
          question: "q",
          answer: 'a\n"b"',
          moderation: "none",
          flagged: false,
          usage: { provider: "p", model: "m", ...tokens },
          apiKeyId: n < 6 ? keyId : null,
          ...(n === 0 && { metadata: { b: 1.5, a: null } }),
        });
        if (n > 0) continue;
        const [entry] = (yield* store.listEntries(full, chat.id, defaultEntryQuery)).items;
        yield* store.rateEntry(full, chat.id, entry!.id, { rating: "good", comment: "ü" }, null);
      }
    }),
  );
});

it("an export and an import preserve ids and times, and are recorded in the audit log", async () => {
  const { stdout: text, ...exported } = await parley("chats export --chatbot Full");
  const stderr = "Exported 36 records (chats and entries).\n";
  expect(exported).toEqual({ code: 0, stderr });
  expect(text.trimEnd().split("\n")).toHaveLength(38);
  expect(text).toContain('"metadata":{"b":1.5,"a":null},"rating":"good","comment":"ü"}');
  expect(text).toMatch(/\n\{"end":\{"chats":12,"entries":24\}\}\n$/);
  const imported = await run(["chats", "import", "--chatbot", "Empty"], settings, text);
  expect(imported).toEqual({ code: 0, stdout: "Imported 12 chats.\n", stderr: "" });
  expect((await parley("chats export --chatbot Empty")).stdout).toBe(text);
  expect(await parley("chats import --chatbot Empty", text)).toEqual({
    code: 1,
    stdout: "",
    stderr:
      "parley: Nothing was imported: the chatbot already has chats.\n" +
      'hint: import the output of "npx --yes pnpm@12 --silent parley chats export" into a chatbot without chats.\n',
  });
  await parley("chats erase --chatbot Empty --idle-since 0s");
  expect(await totalOf(empty)).toBe(0);
  expect(await auditLines(4)).toEqual([
    `${user} export Full `,
    `${user} import Empty 12 chats`,
    `${user} export Empty `,
    expect.stringMatching(`^${user} erase Empty 12 chats idle since `),
  ]);
});

it("chats are listed, found and shown with exact totals, but with their text only if --text is given", async () => {
  const outputOf = (line: string) => json(`chats ${line} --chatbot Full`);
  const odd = await outputOf("list --user-ref odd --limit 4 --page 2 --text");
  expect(odd).toMatchObject({
    total: 6,
    chats: [
      { id: 4, userRef: "odd", name: "Chat 3 😀" },
      { id: 2, userRef: "odd", name: "Chat 1 😀" },
    ],
  });
  const { createTime } = odd.chats[1];
  expect(await outputOf("list --search T\u00a01")).toEqual({
    total: 3,
    chats: [
      { id: 12, userRef: "odd", createTime: expect.any(String), nameLength: 9 },
      { id: 11, userRef: "even", createTime: expect.any(String), nameLength: 9 },
      { id: 2, userRef: "odd", createTime, nameLength: 8 },
    ],
  });
  const entry = {
    id: 4,
    createTime: expect.any(String),
    flagged: false,
    moderation: "none",
    rating: null,
  };
  const lengths = { questionLength: 1, answerLength: 5, commentLength: null };
  const texts = { question: "q", answer: 'a\n"b"', comment: null };
  const total = { total: 2 };
  expect(await outputOf("show 2 --limit 1")).toEqual({
    ...total,
    entries: [{ ...entry, ...lengths, metadataLength: null }],
  });
  expect(await outputOf("show 2 --limit 1 --text")).toEqual({
    ...total,
    entries: [{ ...entry, ...texts, metadata: null }],
  });
  const table = (await parley("chats list --chatbot Full --limit 1")).stdout;
  expect(table).toMatch(
    /^ID {2}CREATE TIME +USER REF {2}NAME LENGTH\n12 {2}\S+Z {2}odd {7}9\n1 of 12 chats\n$/,
  );
  expect((await parley("chats show 2 --chatbot Full")).stdout).not.toContain("Hello");
  expect((await parley("chats show 2 --chatbot Full --text")).stdout).toContain(
    "Hello\ncomment     -\nmetadata    -\n\n2 of 2",
  );
});

it("one chat, a user's chats or idle chats can be erased, and the audit log records it", async () => {
  const chat = (id: number, _createTime: string) =>
    `{"chat":{"id":${id},"name":null,"userRef":null,"_createTime":"${_createTime}"}}\n`;
  const older = chat(1, "2025-12-31T23:59:59.999Z") + chat(2, "2026-01-01T00:00:00.000Z");
  await parley("chats import --chatbot Empty", `${older}{"end":{"chats":2,"entries":0}}\n`);
  const all = await withStores(ChatStore.use((store) => store.listChats(full, defaultChatQuery)));
  const { id } = all.items[0]!;
  for (const [which, erased] of [
    [`Full --id ${id}`, "1 chat"],
    [`Full --id ${id}`, "0 chats"],
    ["Full --user-ref even", "6 chats"],
    ["Empty --idle-since 2026-01-01", "1 chat"],
  ] as const) {
    expect(await parley(`chats erase --chatbot ${which}`)).toEqual({
      code: 0,
      stdout: `Erased ${erased}.\n`,
      stderr: "",
    });
  }
  expect(await totalOf(full)).toBe(5);
  expect(await totalOf(empty)).toBe(1);
  expect(await auditLines(4)).toEqual([
    `${user} import Empty 2 chats`,
    `${user} erase Full chat ${id}`,
    expect.stringMatching(`^${user} erase Full 6 chats of a userRef sha256:\\w{32}:\\w{64}$`),
    `${user} erase Empty 1 chat idle since 2026-01-01T00:00:00.000Z`,
  ]);
});

it("a person's chats can be exported, or erased from a workspace; the audit log records both without the userRef", async () => {
  await withStores(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const store = yield* ChatStore;
      for (const [name, workspaceName] of [
        ["One", "People"],
        ["Two", "People"],
        ["Three", "Elsewhere"],
      ] as const) {
        const chatbot = { workspaceName, name, description: "", settings: defaultSettings };
        const { id } = yield* registry.create({ ...chatbot, keys: [] }, "test");
        for (const userRef of ["ann@example.org", "bob@example.org"]) {
          yield* store.createChat(id, { name: userRef, userRef, helloMessage: "Hello" }, null);
        }
      }
    }),
  );
  const ann = "--user-ref ann@example.org";
  const { stdout: text } = await parley(`chats export --chatbot One ${ann}`);
  expect(text).toMatch(
    /"userRef":"ann@example.org"(.*\n){2}\{"end":\{"chats":1,"entries":1\}\}\n$/,
  );
  expect(text).not.toContain("bob");
  for (const wrong of ["", "--id 1", "--idle-since 1d", `${ann} --chatbot One`]) {
    expect((await parley(`chats erase --workspace People ${wrong}`)).code).toBe(2);
  }
  expect((await parley(`chats erase --workspace Nowhere ${ann}`)).stderr).toContain("no workspace");
  const erased = await parley(`chats erase --workspace People ${ann}`);
  expect(erased).toEqual({ code: 0, stdout: "Erased 2 chats.\n", stderr: "" });
  const about = async (userRef: string) =>
    (await json(`audit --user-ref ${userRef}`)).map(
      (line: { action: string; chatbotName: string }) => `${line.action} ${line.chatbotName}`,
    );
  expect(await about("ann@example.org")).toEqual(["erase Two", "erase One", "export One"]);
  // The newest entry of the log is not about ann.
  expect((await parley("chatbot set --chatbot Three --description Changed")).code).toBe(0);
  expect(await about("ann@example.org --limit 1")).toEqual(["erase Two"]);
  expect(await about("bob@example.org")).toEqual([]);
  expect((await parley("audit --json --limit 100000")).stdout).not.toContain("example.org");
  expect((await parley("chats list --chatbot Three")).stdout).toContain("2 of 2 chats");
});

it("a command that prints text from chats is recorded in the audit log, with the name in PARLEY_ACTOR", async () => {
  const { id } = (await json("chats list --chatbot Full --limit 1")).chats[0];
  const lines = await auditLines(100);
  await parley("chats show --chatbot Full 17");
  expect(await auditLines(100)).toEqual(lines);
  const ann = { ...settings, PARLEY_ACTOR: "ann" };
  await here(["chats", "show", "--chatbot", "Full", "--text", `${id}`], ann);
  await here(["chats", "list", "--chatbot", "Full", "--text", "--search", "secret"], ann);
  expect(await auditLines(2)).toEqual([
    `${user} (ann) read Full chat ${id}`,
    `${user} (ann) read Full chat names`,
  ]);
});

it("parley usage sums the tokens of answers, also of those that have been erased", async () => {
  const { stdout } = await parley("usage --chatbot Full");
  expect(stdout).toMatch(/^PROVIDER {2}MODEL {2}ANSWERS .* PROMPT TOKENS .*\np {9}m {6}12 .* 36 /);
  const sums = { answers: 12, attempts: 12, promptTokens: 36, completionTokens: 48 };
  expect(await json("usage --chatbot Full")).toEqual([{ provider: "p", model: "m", ...sums }]);
  for (const [by, rows] of [
    ["day", [{ day: expect.stringMatching(/^\d{4}-\d\d-\d\d$/) }]],
    ["key", [{ key: keyId }, { key: null }]],
    [
      "user-ref",
      [
        { userRef: "odd", answers: 5 },
        { userRef: null, answers: 7 },
      ],
    ],
  ] as const) {
    const grouped = await json(`usage --chatbot Full --by ${by}`);
    expect(grouped).toMatchObject(rows);
    const answers = grouped.map((sum: typeof sums) => sum.answers);
    expect(answers.reduce((all: number, count: number) => all + count)).toBe(12);
  }
  expect((await parley("usage --chatbot Full --by key")).stdout).toMatch(
    new RegExp(`^KEY +KEY NAME +PROVIDER .*\\n${keyId} +web +p .*\\n- +- +p .*\\n$`),
  );
  expect(await json("usage --chatbot Full --from 30d")).toHaveLength(1);
  for (const none of ["--from 0s", "--until 30d"])
    expect(await json(`usage --chatbot Full ${none}`)).toEqual([]);
  expect((await parley("usage --chatbot Full --workspace W")).code).toBe(2);
});

it("usage by key shows what a key with a budget has spent today, even if it has no answers in that time", async () => {
  expect((await parley("chatbot create --workspace W --name Budgeted")).code).toBe(0);
  const createKey = async (name: string) =>
    (await parley(`key create --chatbot Budgeted --name ${name} --budget 500/day`)).stdout.split(
      "_",
    )[1]!;
  const [answered, broken] = [await createKey("answered"), await createKey("broken")];
  await createKey("unused");
  const { id } = (await json("chatbot list")).at(-1);
  await withStores(
    Effect.gen(function* () {
      const turns = yield* TurnStore;
      const take = takeTurn(id, null);
      const tokens = { promptTokens: 30, completionTokens: 10, attempts: 1, latencyMillis: 5 };
      const spending = { apiKeyId: answered, spentTokens: 40 };
      const usage = { provider: "p", model: "m", ...tokens };
      yield* turns.append(yield* take, { ...helloEntry("a"), question: "q", ...spending, usage });
      yield* turns.release(yield* take, { apiKeyId: broken, tokens: 3 });
    }),
  );
  const usage = (more: string) => json(`usage --chatbot Budgeted --by key ${more}`);
  const counts = { answers: 0, attempts: 0, promptTokens: 0, completionTokens: 0 };
  const row = { provider: null, model: null, ...counts, tokensPerDay: 500 };
  const unanswered = { key: broken, keyName: "broken", ...row, spentToday: 3 };
  const spent = { key: answered, answers: 1, spentToday: 40, tokensPerDay: 500 };
  expect(await usage("--from 1d")).toEqual(
    expect.arrayContaining([expect.objectContaining(spent), unanswered]),
  );
  expect(await usage("--from 0s")).toContainEqual(unanswered);
  expect((await usage("--from 0s")).map(({ keyName }: any) => keyName)).not.toContain("unused");
});

it("parley chatbot size lists what each chatbot keeps, the biggest first", async () => {
  const { stdout } = await parley("chatbot size");
  expect(stdout).toMatch(/^ID +WORKSPACE +NAME +CHATS +ENTRIES +BYTES\n\d+ +\S+ +Full +/);
  const sizes: ReadonlyArray<Record<string, number>> = await json("chatbot size");
  const { bytes, chats, entries } = sizes[0]!;
  const { total } = await json("chats list --chatbot Full");
  expect([chats, entries! > 0]).toEqual([total, true]);
  expect(sizes).toEqual(sizes.toSorted((a, b) => b["bytes"]! - a["bytes"]!));
  expect(bytes).toBeGreaterThan(150 * (chats! + entries!));
});

it("parley chats post adds an entry with its metadata, which the audit log records without its text", async () => {
  const { id: chat } = (await json("chats list --chatbot Full --limit 1")).chats[0];
  const post = `chats post ${chat} --chatbot Full`;
  const { id } = await json(`${post} Sorry! --author Ann --metadata {"page":3}`);
  const piped = await parley(post, "It is in stock.\nYours\n");
  expect(piped).toEqual({
    code: 0,
    stdout: `Posted entry ${id + 1} in chat ${chat}.\n`,
    stderr: "",
  });
  expect(await auditLines(2)).toEqual([
    `${user} post Full chat ${chat}, entry ${id}`,
    `${user} post Full chat ${chat}, entry ${id + 1}`,
  ]);
  const { entries } = await json(`chats show ${chat} --limit 2 --chatbot Full --text`);
  expect(entries).toMatchObject([
    { id: id + 1, question: "", answer: "It is in stock.\nYours", metadata: null },
    { id, question: "", answer: "Sorry!", metadata: { page: 3, author: "Ann" } },
  ]);
  expect((await parley(`chats show ${chat} --chatbot Full --text`)).stdout).toContain(
    '\nmetadata    {"page":3,"author":"Ann"}\n',
  );
  const lines = await auditLines(100);
  for (const wrong of ["99 text", `${chat} \u0085`])
    expect((await parley(`chats post ${wrong} --chatbot Full`)).code).toBe(1);
  expect(await auditLines(100)).toEqual(lines);
});

it("parley feedback counts ratings, and lists bad and unanswered entries with an audit entry", async () => {
  const { chats } = await json("chats list --chatbot Full --limit 3");
  const [one, two, three] = chats.map((chat: { id: number }) => chat.id);
  const answer = Effect.fnUntraced(function* (chatId: ChatId, more: Partial<NewEntry>) {
    const turn = yield* takeTurn(full, chatId);
    const entry = { ...helloEntry("a"), question: "why?", ...more };
    return yield* TurnStore.use((turns) => turns.append(turn, entry));
  });
  const requestId = "a-request";
  await withStores(
    Effect.gen(function* () {
      const { rateEntry } = yield* ChatStore;
      const nothing = { metadata: { found: false }, requestId };
      const first = yield* answer(one, { apiKeyId: keyId });
      const second = yield* answer(two, nothing);
      yield* answer(three, { metadata: { sources: [{ title: "t", found: false }] } });
      yield* rateEntry(full, one, first.id, { rating: "good" }, null);
      yield* rateEntry(full, two, second.id, { rating: "bad", comment: "No!" }, null);
    }),
  );
  const day = new Date().toISOString().slice(0, 10);
  const feedback = (line: string) => json(`feedback --chatbot Full ${line}`);
  const before = await auditLines(100);
  const [good, bad] = [
    { good: 1, bad: 0 },
    { good: 0, bad: 1 },
  ];
  expect(await feedback("--since 1d")).toEqual([
    { day, model: null, key: keyId, keyName: "web", ...good },
    { day, model: null, key: null, keyName: null, ...bad },
  ]);
  expect(await feedback("--by model")).toEqual([{ model: null, good: 1, bad: 1 }]);
  expect((await parley("feedback --chatbot Full --by day")).stdout).toBe(
    `DAY         GOOD  BAD\n${day}  1     1\n`,
  );
  expect((await parley("feedback --chatbot Empty")).stdout).toBe("There are no ratings.\n");
  expect(await auditLines(100)).toEqual(before);
  const badEntry = { chat: two, rating: "bad", question: "why?", answer: "a", comment: "No!" };
  for (const flag of ["--bad", "--unanswered"])
    expect(await feedback(flag)).toMatchObject([{ ...badEntry, key: null, requestId }]);
  expect(await feedback("--bad --since 0s")).toEqual([]);
  expect((await parley("feedback --chatbot Full --bad")).stdout).toMatch(/comment +No!\n$/);
  expect(await auditLines(4)).toEqual([
    `${user} read Full entries rated bad`,
    `${user} read Full unanswered questions`,
    `${user} read Full entries rated bad`,
    `${user} read Full entries rated bad`,
  ]);
});

it("a command that cannot write its output fails, but still prints the id of a new key", async () => {
  const device = await open("/dev/full", "w");
  const loseOutput = async (...args: ReadonlyArray<string>) => {
    const stdio = ["ignore", device.fd, "pipe"] satisfies SpawnOptions["stdio"];
    const line = [...args, "--chatbot", "Full"];
    const { exit, output } = start(line, settings, undefined, { stdio });
    expect(await exit).toBe(1);
    const { stderr } = output;
    expect(stderr).toContain("ENOSPC: no space left on device, write");
    return stderr;
  };
  await loseOutput("usage");
  expect(await loseOutput("key", "create")).toMatch(/^The key prl_\w{12}_… for chatbot/);
  await device.close();
});

it("parley migrate prints the SQL with --dry-run, and otherwise brings the schema up to date", async () => {
  const schema = `migrate_${process.pid}`;
  const fresh = { DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema };
  const plan = await here(["migrate", "--dry-run"], fresh);
  expect(plan).toMatchObject({ code: 0, stdout: expect.stringContaining("create table chat (") });
  expect((await here(["migrate"], fresh)).stdout).toBe("The schema is now up to date.\n");
  expect((await here(["migrate"], fresh)).stdout).toBe("The schema was already up to date.\n");
});

it("a command on a file loads neither the PostgreSQL store nor the HTTP interfaces", async () => {
  const hooks = "{ load(url, context, next) { console.error(url); return next(url, context); } }";
  const source = `import { registerHooks } from "node:module"; registerHooks(${hooks});`;
  const program = [process.execPath, "--import", `data:text/javascript,${source}`, main] as const;
  const { exit, output } = start(["chatbot", "list"], settings, program);
  expect(await exit).toBe(0);
  expect(output.stderr).toContain("packages/store-sqlite/");
  expect(output.stderr).not.toMatch(/packages\/(store-pg|http|llm|pages)\//);
});
