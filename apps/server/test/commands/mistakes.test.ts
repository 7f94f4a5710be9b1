/**
 * Every command, used wrongly or where it cannot work: one line of error, a hint, an exit code that is
 * not 0, and nothing done.
 */
import { ChatbotRegistry } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Exit, Redacted } from "effect";
import { access } from "node:fs/promises";
import { beforeAll, describe, expect, inject, it } from "vitest";
import { commandOf } from "../../src/CommandOf.ts";
import { teardown } from "../../src/Teardown.ts";
import { here, oneLineAndHint } from "./here.ts";
import { run } from "./run.ts";

const schema = `mistakes_${process.pid}`;
const settings = () => ({ DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema });

/** All that commands can change. */
const kept = () =>
  ChatbotRegistry.use((registry) =>
    Effect.all({ chatbots: registry.list, audit: registry.audit(1000) }),
  ).pipe(
    Effect.provide(layerPostgres({ url: Redacted.make(inject("postgresUrl")), schema })),
    Effect.runPromise,
  );

let before: Awaited<ReturnType<typeof kept>>;

beforeAll(async () => {
  expect((await here(["migrate"], settings())).code).toBe(0);
  for (const name of ["One", "Two"]) {
    const made = await here(
      ["chatbot", "create", "--workspace", "Acme", "--name", name],
      settings(),
    );
    expect(made.code).toBe(0);
  }
  before = await kept();
  expect(before.audit).toHaveLength(2);
});

const id = "0123456789AB";

/** Of every command one use that would work, were it not for the database. */
const uses: ReadonlyArray<ReadonlyArray<string>> = [
  ["migrate"],
  ["workspace", "list"],
  ["workspace", "rename", "Acme", "Beta"],
  ["chatbot", "create", "--workspace", "Acme", "--name", "Three"],
  ["chatbot", "list"],
  ["chatbot", "show", "--chatbot", "One"],
  ["chatbot", "set", "--chatbot", "One", "--name", "Three"],
  ["key", "create", "--chatbot", "One"],
  ["key", "list"],
  ["key", "change", id, "--name", "n"],
  ["key", "rotate", id],
  ["key", "revoke", id],
  ["provision", "/nowhere"],
  ["audit"],
  ["chat", "--chatbot", "One"],
  ["chats", "erase", "--chatbot", "One", "--id", "1"],
  ["chats", "export", "--chatbot", "One"],
  ["chats", "import", "--chatbot", "One"],
  ["usage", "--chatbot", "One"],
];

const titled = (all: typeof uses) => all.map((args) => [args.join(" "), args] as const);

describe("a command that is used wrongly says so", () => {
  const wrong: ReadonlyArray<ReadonlyArray<string>> = [
    ...uses.flatMap((use) => [
      [...use, "--nonsense"],
      [...use, "surplus"],
    ]),
    ["nonsense"],
    ["key", "nonsense"],
    ["workspace", "rename", "Acme"],
    ["chatbot", "create", "--workspace", "Acme"],
    ["chatbot", "set", "--chatbot", "One"],
    ["chatbot", "set", "--chatbot", "One", "--moderation", "sometimes"],
    ["chatbot", "set", "--chatbot", "One", "--retention-days", "soon"],
    ["chatbot", "set", "--chatbot", "One", "--unset", "name"],
    ["chatbot", "set", "--chatbot", "One", "--model", "m", "--unset", "model"],
    ["chatbot", "set", "--chatbot", "One", "--instructions", "i", "--instructions-file", "-"],
    ["key", "create", "--chatbot", "One", "--scopes", "admin"],
    ["key", "create", "--chatbot", "One", "--scopes", "read,read"],
    ["key", "create", "--chatbot", "One", "--expires", "tomorrow"],
    ["key", "create", "--chatbot", "One", "--expires", "2020-01-01"],
    ["key", "change", id],
    ["key", "change", id, "--name", "n", "--unset", "name"],
    ["key", "change", "short", "--name", "n"],
    ["key", "rotate", id, "--keep-for", "long"],
    ["key", "revoke"],
    ["key", "generate", "--nonsense"],
    ["chat", "--chat", "first"],
    ["doctor", "--nonsense"],
    ["provision"],
    ["audit", "--limit", "0"],
    ["audit", "--limit", "all"],
    ["chats", "erase", "--id", "x"],
    ["chats", "erase"],
    ...[
      "foo 1",
      "5",
      "01/02/2026",
      "2026-1-1",
      "2026-02-31",
      "2026-03-02 09:00",
      "-200000-01-01",
    ].map((time) => ["chats", "erase", "--chatbot", "One", `--idle-since=${time}`]),
    ["chats", "erase", "--chatbot", "One", "--idle-since", "2999-01-01"],
    ["chats", "erase", "--chatbot", "One", "--id", "1", "--quick", "--full"],
    ["usage", "--since", "yesterday"],
    ["usage", "--since", "2026-02-31"],
    ["key", "create", "--chatbot", "One", "--expires", "2999-02-31"],
    ["key", "create", "--chatbot", "One", "--expires", "99999999999w"],
  ];

  it.each(titled(wrong))("parley %s", async (_, args) => {
    const { code, stderr, stdout } = await here(args, settings());
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(oneLineAndHint);
  });

  it("and does nothing", async () => expect(await kept()).toEqual(before));
});

describe("a command that does not find what it is about says so", () => {
  const misses: ReadonlyArray<ReadonlyArray<string>> = [
    ["workspace", "rename", "Nobody", "Beta"],
    ["workspace", "rename", "Acme", ""],
    ["chatbot", "create", "--workspace", "Acme", "--name", "One"],
    ["chatbot", "create", "--name", ""],
    ["chatbot", "show"],
    ["chatbot", "show", "--chatbot", "Nobody"],
    ["chatbot", "set", "--chatbot", "One", "--name", "Two"],
    ["chatbot", "set", "--chatbot", "One", "--retention-days", "0"],
    ["chatbot", "set", "--chatbot", "One", "--knowledge", "../elsewhere"],
    ["chatbot", "set", "--chatbot", "One", "--instructions-file", "/nowhere"],
    ["key", "create"],
    ["key", "list", "--chatbot", "Nobody"],
    ["key", "change", id, "--name", "n"],
    ["key", "rotate", id],
    ["key", "revoke", id],
    ["chat"],
    ["chat", "--chatbot", "One", "--chat", "999"],
    ["provision", "/nowhere"],
    ["provision", "/nowhere", "--dry-run"],
    ["chats", "export", "--chatbot", "One", "--output", "/nowhere/chats.ndjson"],
    ["chats", "import", "--chatbot", "One", "--input", "/nowhere/chats.ndjson"],
  ];

  it.each(titled(misses))("parley %s", async (_, args) => {
    const { code, stderr, stdout } = await here(args, settings());
    expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
    expect(stderr).toMatch(oneLineAndHint);
  });

  it("and does nothing", async () => expect(await kept()).toEqual(before));
});

describe("a command without its database says so", () => {
  it.each(titled(uses))("parley %s", async (_, args) => {
    for (const wrong of [
      { PARLEY_STORE: "memory" },
      { DATABASE_URL: "postgres://parley:secret@127.0.0.1:1/parley" },
      { PARLEY_DATA_DIR: "/proc/nowhere" },
      { PARLEY_STORE: "nonsense" },
    ]) {
      const { code, stderr, stdout } = await here(args, wrong);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      expect(stderr).toMatch(oneLineAndHint);
      expect(stderr).not.toContain("secret");
    }
  });

  it("and brings none up to date", async () => {
    const fresh = { ...settings(), PARLEY_SCHEMA: `${schema}_fresh` };
    for (const args of uses.slice(1)) {
      const { code, stderr, stdout } = await here(args, fresh);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      expect(stderr).toContain(
        'The schema of the database is not up to date: run "parley migrate"',
      );
    }
  });

  it("and makes none where there is none", async () => {
    const dataDir = `/tmp/parley-nowhere-${process.pid}`;
    for (const args of uses.slice(1)) {
      const { code, stderr } = await here(args, { PARLEY_DATA_DIR: dataDir });
      expect(code).toBe(1);
      expect(stderr).toContain(`There is no database in PARLEY_DATA_DIR ${dataDir}: `);
    }
    await expect(access(dataDir)).rejects.toMatchObject({ code: "ENOENT" });
  });
});

it("the process ends with the exit code, and standard output stays empty", async () => {
  const dead = { DATABASE_URL: "postgres://parley:secret@127.0.0.1:1/parley" };
  for (const [code, ...args] of [
    [2, "key", "revoke"],
    [1, "key", "list"],
  ] as const) {
    const ran = await run(args, dead);
    expect(ran).toMatchObject({ code, stdout: "" });
    expect(ran.stderr).toMatch(oneLineAndHint);
  }
  const help = await run(["key", "--help"], dead);
  expect(help).toMatchObject({ code: 0, stderr: "", stdout: expect.stringContaining("revoke") });
});

it("to be stopped is a failure of every command but serve", () => {
  const codes: Array<number> = [];
  for (const serves of [false, true])
    teardown(serves)(Exit.interrupt(), (code) => codes.push(code));
  expect(codes).toEqual([130, 0]);
});

it("the command is the first argument but for the level of the log", () => {
  const isServe = (...args: ReadonlyArray<string>) =>
    commandOf(["node", "parley", ...args]) === "serve";
  expect(isServe("serve", "--log-level", "debug")).toBe(true);
  expect(isServe("--log-level", "debug", "serve")).toBe(true);
  expect(isServe("--log-level=debug", "serve")).toBe(true);
  expect(isServe("chat", "--chatbot", "serve")).toBe(false);
  expect(isServe("--log-level", "debug", "chat", "--chatbot", "serve")).toBe(false);
  expect(isServe("--log-level", "serve")).toBe(false);
  expect(isServe()).toBe(false);
});
