/**
 * Commands that are used incorrectly or without a usable database.
 */
import { defaultChatQuery } from "@parley/core";
import { ChatbotId, ChatbotRegistry, ChatStore } from "@parley/core/ports";
import { layerPostgres } from "@parley/store-pg";
import { Effect, ManagedRuntime, Redacted } from "effect";
import { access } from "node:fs/promises";
import { afterAll, afterEach, beforeAll, describe, expect, inject, it } from "vitest";
import { here, oneLineAndHint } from "./here.ts";
import { run } from "./run.ts";

const schema = `mistakes_${process.pid}`;
const settings = () => ({ DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: schema });

const stores = ManagedRuntime.make(
  layerPostgres({ url: Redacted.make(inject("postgresUrl")), schema }),
);
afterAll(() => stores.dispose());

const chatbotId = ChatbotId.make(1);

/** Shows whether a command has changed anything. */
const snapshot = () =>
  stores.runPromise(
    Effect.gen(function* () {
      const registry = yield* ChatbotRegistry;
      const store = yield* ChatStore;
      return yield* Effect.all({
        chatbots: registry.list,
        audit: registry.audit(1000),
        chats: store.listChats(chatbotId, defaultChatQuery),
      });
    }),
  );

let before: Awaited<ReturnType<typeof snapshot>>;

beforeAll(async () => {
  expect((await here(["migrate"], settings())).code).toBe(0);
  for (const name of ["One", "Two"]) {
    const create = ["chatbot", "create", "--workspace", "Acme", "--name", name];
    expect((await here(create, settings())).code).toBe(0);
  }
  const chat = { name: null, userRef: "u", helloMessage: null };
  await stores.runPromise(ChatStore.use((store) => store.createChat(chatbotId, chat, null)));
  before = await snapshot();
});

const id = "0123456789AB";

/** Command lines that need a database. */
const uses = [
  "chatbot create --workspace Acme --name Three",
  "chatbot list",
  "chatbot show --chatbot One",
  "chatbot set --chatbot One --name Three",
  "chatbot delete One --yes",
  "key create --chatbot One",
  "key list",
  `key set ${id} --name n`,
  `key rotate ${id}`,
  `key revoke ${id}`,
  "provision /nowhere",
  "audit",
  "chat --chatbot One",
  "chats list --chatbot One",
  "chats show 1 --chatbot One",
  "chats list --search a --chatbot One",
  "chats erase --chatbot One --id 1",
  "chats export --chatbot One",
  "chats import --chatbot One",
  "chats post 1 text --chatbot One",
  "usage --chatbot One",
  "feedback --chatbot One",
].map((line) => line.split(" "));

/** Checks that a command exits with the code and prints only a one-line error and a hint, on standard error. */
const expectRefusal = async (
  code: number,
  args: ReadonlyArray<string>,
  variables: Readonly<Record<string, string>>,
) => {
  const { stderr, ...result } = await here(args, variables);
  expect({ args, ...result }).toEqual({ args, code, stdout: "" });
  expect(stderr).toMatch(oneLineAndHint);
  expect(stderr).not.toContain("secret");
  return stderr;
};

describe("a mistake ends a command with a one-line error, a hint and an exit code", () => {
  afterEach(async () => expect(await snapshot()).toEqual(before));

  const wrong = [
    "nonsense",
    "key list --nonsense",
    "chatbot create --workspace Acme",
    "chatbot set --chatbot One --moderation sometimes",
    "chatbot set --chatbot One --unset name",
    "key create --chatbot One --scopes admin",
    "key create --chatbot One --expires tomorrow",
    "key create --chatbot One --expires 2020-01-01",
    `key set ${id}`,
    "chatbot set --chatbot One",
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
  ];
  it.each(wrong)("parley %s is incorrect usage, changes nothing and exits with 2", async (line) => {
    await expectRefusal(2, line.split(" "), settings());
  });

  const failing = [
    "chats erase --workspace Nobody --user-ref u",
    "chatbot create --workspace Acme --name One",
    "chatbot show",
    "chatbot set --chatbot One --name Two",
    "chatbot delete Nobody --yes",
    "chatbot delete One",
    `key set ${id} --name n`,
    "provision /nowhere",
    "chats show 99 --chatbot One",
  ];
  it.each(failing)("parley %s fails, changes nothing and exits with 1", async (line) => {
    await expectRefusal(1, line.split(" "), settings());
  });
});

describe("a command without a usable database says so", () => {
  const dataDir = `/tmp/parley-nowhere-${process.pid}`;

  it.each([
    [{ PARLEY_STORE: "memory" }, "commands need another store"],
    [{ DATABASE_URL: "postgres://parley:hidden@127.0.0.1:1/parley" }, "ECONNREFUSED"],
    [{ PARLEY_DATA_DIR: dataDir }, `There is no database in PARLEY_DATA_DIR ${dataDir}: `],
    [{ PARLEY_STORE: "nonsense" }, "PARLEY_STORE"],
  ])("a command without a usable database says so: %j", async (wrong, reason) => {
    for (const args of [
      ["chatbot", "list"],
      ["migrate", "--dry-run"],
    ])
      expect(await expectRefusal(1, args, wrong)).toContain(reason);
    await expect(access(dataDir)).rejects.toMatchObject({ code: "ENOENT" });
  });

  it("a command fails if the schema is out of date, and does not update it", async () => {
    const fresh = { ...settings(), PARLEY_SCHEMA: `${schema}_fresh` };
    for (const args of uses) {
      expect(await expectRefusal(1, args, fresh)).toContain("The database schema is out of date");
    }
  });
});

it("a process that runs a command exits with the command's code, and prints help only on standard output", async () => {
  const dead = { DATABASE_URL: "postgres://parley:hidden@127.0.0.1:1/parley" };
  const result = await run(["key", "revoke"], dead);
  expect(result).toMatchObject({ code: 2, stdout: "" });
  expect(result.stderr).toMatch(oneLineAndHint);
  const help = await run(["key", "--help"], dead);
  expect(help).toMatchObject({ code: 0, stderr: "", stdout: expect.stringContaining("revoke") });
});
