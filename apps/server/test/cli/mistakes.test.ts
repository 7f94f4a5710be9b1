/**
 * Commands that are used incorrectly or without a usable database.
 */
import { access } from "node:fs/promises";
import { beforeAll, expect, inject, it } from "vitest";
import { here, oneLineAndHint, shell } from "./here.ts";
import { run } from "./run.ts";

const schema = `mistakes_${process.pid}`;
const settings = { DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema };
const { parley } = shell(settings);
const id = "0123456789AB";

/** What a command that has changed anything would have changed. */
const snapshot = async () => {
  const outputs: Array<string> = [];
  for (const line of ["chatbot list --json", "audit --json", "chats list --chatbot One --json"])
    outputs.push((await parley(line)).stdout);
  return outputs;
};

beforeAll(async () => {
  expect((await parley("migrate")).code).toBe(0);
  for (const name of ["One", "Two"])
    expect((await parley(`chatbot create --workspace Acme --name ${name}`)).code).toBe(0);
  const time = '"_createTime":"2026-01-01T00:00:00.000Z"';
  const chat = `{"chat":{"id":1,"name":null,"userRef":"u",${time}}}\n{"end":{"chats":1,"entries":0}}\n`;
  expect((await parley("chats import --chatbot One", chat)).code).toBe(0);
});

/** Checks that a command exits with the code and prints only a one-line error and a hint, on standard error. */
const expectRefusal = async (
  code: number,
  args: ReadonlyArray<string>,
  variables: Readonly<Record<string, string>>,
) => {
  const { stderr, ...result } = await here(args, variables);
  expect({ args, ...result }).toEqual({ args, code, stdout: "" });
  expect(stderr).toMatch(oneLineAndHint);
  expect(stderr).not.toContain("hidden");
  return stderr;
};

it("incorrect usage of a command changes nothing, and exits with 2 and a one-line error", async () => {
  const before = await snapshot();
  for (const line of [
    "nonsense",
    "key list --nonsense",
    "chatbot create --workspace Acme",
    "chatbot set --chatbot One --moderation sometimes",
    "chatbot set --chatbot One --unset name",
    "chatbot set --chatbot One",
    "key create --chatbot One --scopes admin",
    "key create --chatbot One --expires tomorrow",
    "key create --chatbot One --expires 2020-01-01",
    `key set ${id}`,
    "key set short --name n",
    `key rotate ${id} --keep-for long`,
    "chat --chat first",
    "audit --limit 0",
    "chats erase",
    "chats erase --id 1 --user-ref u --chatbot One",
    "chats erase --idle-since 2026-03-02T09:00 --chatbot One",
    "chats post 1 text --chatbot One --metadata [1]",
    `chats post 1 text --chatbot One --author ${"a".repeat(61)}`,
    "feedback --chatbot One --bad --unanswered",
    "feedback --chatbot One --by user-ref",
  ])
    await expectRefusal(2, line.split(" "), settings);
  expect(await snapshot()).toEqual(before);
});

it("a command that cannot do its work changes nothing, and exits with 1 and a one-line error", async () => {
  const before = await snapshot();
  for (const line of [
    "chats erase --workspace Nobody --user-ref u",
    "chatbot create --workspace Acme --name One",
    "chatbot show",
    "chatbot set --chatbot One --name Two",
    "chatbot delete Nobody --yes",
    "chatbot delete One",
    `key set ${id} --name n`,
    "provision /nowhere",
    "chats show 99 --chatbot One",
  ])
    await expectRefusal(1, line.split(" "), settings);
  expect(await snapshot()).toEqual(before);
});

it("a command without a usable database says so, and creates none", async () => {
  const dataDir = `/tmp/parley-nowhere-${process.pid}`;
  for (const [wrong, reason] of [
    [{ PARLEY_STORE: "memory" }, "commands need another store"],
    [{ DATABASE_URL: "postgres://parley:hidden@127.0.0.1:1/parley" }, "ECONNREFUSED"],
    [{ PARLEY_DATA_DIR: dataDir }, `There is no database in PARLEY_DATA_DIR ${dataDir}: `],
    [{ PARLEY_STORE: "nonsense" }, "PARLEY_STORE"],
  ] as const) {
    for (const args of [
      ["chatbot", "list"],
      ["migrate", "--dry-run"],
    ])
      expect(await expectRefusal(1, args, wrong)).toContain(reason);
  }
  await expect(access(dataDir)).rejects.toMatchObject({ code: "ENOENT" });
  // Nor does a command change a schema that is out of date.
  const fresh = { ...settings, PARLEY_SCHEMA: `${schema}_fresh` };
  for (const line of ["chatbot list", `key rotate ${id}`, "chat", "chats import", "usage", "audit"])
    expect(await expectRefusal(1, line.split(" "), fresh)).toContain(
      "The database schema is out of date",
    );
});

it("a process that runs a command exits with the command's code, and prints help only on standard output", async () => {
  const dead = { DATABASE_URL: "postgres://parley:hidden@127.0.0.1:1/parley" };
  const result = await run(["key", "revoke"], dead);
  expect(result).toMatchObject({ code: 2, stdout: "" });
  expect(result.stderr).toMatch(oneLineAndHint);
  const help = await run(["key", "--help"], dead);
  expect(help).toMatchObject({ code: 0, stderr: "", stdout: expect.stringContaining("revoke") });
});
