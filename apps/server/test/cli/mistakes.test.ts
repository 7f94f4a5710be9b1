/**
 * Every command, used wrongly or where it cannot work: one line of error, a hint, an exit code that is
 * not 0, and nothing done.
 */
import * as PgClient from "@effect/sql-pg/PgClient";
import { ChatbotRegistry } from "@parley/core";
import { layerPostgres } from "@parley/store-pg";
import { Effect, Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { access } from "node:fs/promises";
import { beforeAll, describe, expect, inject, it } from "vitest";
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
  ["chatbot", "delete", "One", "--yes"],
  ["key", "create", "--chatbot", "One"],
  ["key", "list"],
  ["key", "change", id, "--name", "n"],
  ["key", "rotate", id],
  ["key", "revoke", id],
  ["provision", "/nowhere"],
  ["audit"],
  ["chat", "--chatbot", "One"],
  ["chats", "list", "--chatbot", "One"],
  ["chats", "show", "1", "--chatbot", "One"],
  ["chats", "search", "a", "--chatbot", "One"],
  ["chats", "erase", "--chatbot", "One", "--id", "1"],
  ["chats", "export", "--chatbot", "One"],
  ["chats", "import", "--chatbot", "One"],
  ["usage", "--chatbot", "One"],
];

const titled = (all: ReadonlyArray<ReadonlyArray<string>>) =>
  all.map((args) => [args.join(" "), args] as const);

describe("a command that is used wrongly says so", () => {
  const wrong: ReadonlyArray<ReadonlyArray<string>> = [
    ["nonsense"],
    ["key", "nonsense"],
    ["key", "list", "--nonsense"],
    ["key", "list", "surplus"],
    ["workspace", "rename", "Acme"],
    ["chatbot", "create", "--workspace", "Acme"],
    ["chatbot", "set", "--chatbot", "One"],
    ["chatbot", "set", "--chatbot", "One", "--moderation", "sometimes"],
    ["chatbot", "set", "--chatbot", "One", "--retention-days", "soon"],
    ["chatbot", "set", "--chatbot", "One", "--model", "m", "--unset", "model"],
    ["chatbot", "set", "--chatbot", "One", "--instructions", "i", "--instructions-file", "-"],
    ["chatbot", "delete", "One"],
    ["key", "create", "--chatbot", "One", "--scopes", "admin"],
    ["key", "create", "--chatbot", "One", "--scopes", ""],
    ["key", "create", "--chatbot", "One", "--scopes", "read,read"],
    ["key", "create", "--chatbot", "One", "--expires", "tomorrow"],
    ["key", "create", "--chatbot", "One", "--expires", "2020-01-01"],
    ["key", "create", "--chatbot", "One", "--expires", "2999-02-31"],
    ["key", "create", "--chatbot", "One", "--expires", "99999999999w"],
    ["key", "change", id],
    ["key", "change", "short", "--name", "n"],
    ["key", "rotate", id, "--keep-for", "long"],
    ["key", "revoke"],
    ["chat", "--chat", "first"],
    ["provision"],
    ["audit", "--limit", "0"],
    ["chats", "erase"],
    ["chats", "erase", "--id", "1", "--user-ref", "u"],
    ["chats", "erase", "--idle-since", "2026-03-02 09:00"],
    ["chats", "erase", "--idle-since", "2999-01-01"],
    ["usage", "--since", "yesterday"],
  ];

  it.each(titled(wrong))("parley %s", async (_, args) => {
    const { code, stderr, stdout } = await here(args, settings());
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(oneLineAndHint);
  });

  it("and does nothing", async () => expect(await kept()).toEqual(before));
});

describe("a command whose subject is missing says so", () => {
  const misses: ReadonlyArray<ReadonlyArray<string>> = [
    ["workspace", "rename", "Nobody", "Beta"],
    ["chatbot", "create", "--workspace", "Acme", "--name", "One"],
    ["chatbot", "create", "--name", ""],
    ["chatbot", "show"],
    ["chatbot", "show", "--chatbot", "Nobody"],
    ["chatbot", "set", "--chatbot", "One", "--name", "Two"],
    ["chatbot", "set", "--chatbot", "One", "--retention-days", "0"],
    ["chatbot", "set", "--chatbot", "One", "--instructions-file", "/nowhere"],
    ["chatbot", "delete", "Nobody", "--yes"],
    ["key", "create"],
    ["key", "change", id, "--name", "n"],
    ["key", "rotate", id],
    ["key", "revoke", id],
    ["chat"],
    ["chat", "--chatbot", "One", "--chat", "999"],
    ["provision", "/nowhere"],
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

  it("and names PARLEY_SCHEMA where another program has a table of the same name", async () => {
    const taken = `${schema}_taken`;
    await PgClient.make({ url: Redacted.make(inject("postgresUrl")) }).pipe(
      Effect.flatMap((sql) => sql.unsafe(`create schema ${taken} create table entry (n int)`)),
      Effect.provide(Reactivity.layer),
      Effect.scoped,
      Effect.runPromise,
    );
    for (const command of ["migrate", "serve"]) {
      const { code, stderr } = await here([command], { ...settings(), PARLEY_SCHEMA: taken });
      expect(code).toBe(1);
      expect(stderr).toMatch(oneLineAndHint);
      expect(stderr).toContain("PARLEY_SCHEMA");
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
