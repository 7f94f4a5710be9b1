import { keyId } from "@parley/core";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir, userInfo } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { withoutKeys } from "../../src/WithoutKeys.ts";
import { here, oneLineAndHint } from "./here.ts";

let directory: string;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-administration-"));
});
afterAll(() => rm(directory, { recursive: true, force: true }));

const settings = () => ({
  DATABASE_URL: inject("postgresUrl"),
  PARLEY_SCHEMA: `administration_${process.pid}`,
});
const parley = (...args: ReadonlyArray<string>) => here(args, settings());

/** The document that a command prints. */
const json = async (...args: ReadonlyArray<string>) => {
  const { code, stderr, stdout } = await parley(...args, "--json");
  expect({ code, stderr }).toEqual({ code: 0, stderr: expect.not.stringContaining("parley:") });
  return JSON.parse(stdout);
};

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

const defaults = {
  description: "",
  helloMessage: null,
  moderationErrorMessage: "This question cannot be answered, because it violates the usage policy.",
  instructions: null,
  model: null,
  moderation: null,
  knowledge: null,
  retentionDays: null,
};

describe("parley chatbot and workspace", () => {
  it("make, show and change chatbots", async () => {
    expect((await parley("migrate")).code).toBe(0);
    expect((await parley("chatbot", "show")).stderr).toContain("There is no chatbot yet: ");
    expect((await parley("chatbot", "create", "--name", "Helpdesk")).code).toBe(2);
    const made = await parley(
      "chatbot",
      "create",
      "--workspace",
      "Acme",
      "--name",
      "Helpdesk",
      "--hello-message",
      "Hello!",
      "--retention-days",
      "30",
    );
    expect(made).toEqual({
      code: 0,
      stdout: 'Created the chatbot 1 "Helpdesk" of the workspace "Acme".\n',
      stderr: "",
    });
    const helpdesk = {
      id: 1,
      workspace: "Acme",
      name: "Helpdesk",
      ...defaults,
      helloMessage: "Hello!",
      retentionDays: 30,
    };
    expect(await json("chatbot", "show")).toEqual({ ...helpdesk, liveKeys: 0 });

    // The only workspace need not be named.
    const sales = await json(
      "chatbot",
      "create",
      "--name",
      "Sales",
      "--description",
      "Sells\n\x07",
    );
    expect(sales).toEqual({
      id: 2,
      workspace: "Acme",
      name: "Sales",
      ...defaults,
      description: "Sells\n\x07",
    });
    expect((await parley("chatbot", "list")).stdout).toBe(
      "ID  WORKSPACE  NAME      LIVE KEYS  DESCRIPTION\n" +
        "1   Acme       Helpdesk  0\n" +
        "2   Acme       Sales     0          Sells \ufffd\n",
    );
    expect(await json("chatbot", "list")).toEqual([
      { ...helpdesk, liveKeys: 0 },
      { ...sales, liveKeys: 0 },
    ]);

    const file = join(directory, "instructions.txt");
    await writeFile(file, "Be brief.\nBe kind.\n");
    const everything = await json(
      "chatbot",
      "set",
      "--chatbot",
      "Helpdesk",
      "--workspace",
      "Beta",
      "--name",
      "Desk",
      "--description",
      "Helps",
      "--moderation-error-message",
      "No.",
      "--model",
      "large",
      "--instructions-file",
      file,
      "--moderation",
      "words",
      "--knowledge",
      "manuals",
      "--unset",
      "hello-message",
      "--unset",
      "retention-days",
    );
    expect(everything).toEqual({
      id: 1,
      workspace: "Beta",
      name: "Desk",
      description: "Helps",
      helloMessage: null,
      moderationErrorMessage: "No.",
      instructions: "Be brief.\nBe kind.",
      model: "large",
      moderation: "words",
      knowledge: "manuals",
      retentionDays: null,
    });
    const shown = await parley("chatbot", "show", "--chatbot", "1");
    expect(shown.stdout).toContain(
      "instructions              Be brief.\n                          Be kind.\n",
    );
    const piped = ["chatbot", "set", "--chatbot", "1", "--instructions-file", "-"];
    const set = await here(piped, settings(), "Ask back.\n");
    expect(set.stdout).toBe(
      'Changed the chatbot 1 "Desk" of the workspace "Beta": instructions.\n',
    );
    const again = await here(piped, settings(), "Ask back.\n");
    expect(again.stdout).toBe('The chatbot 1 "Desk" of the workspace "Beta" is so already.\n');

    expect(await json("workspace", "list")).toEqual([
      { name: "Acme", chatbots: 1 },
      { name: "Beta", chatbots: 1 },
    ]);
    const renamed = await parley("workspace", "rename", "Beta", "Acme");
    expect(renamed.stdout).toBe('Renamed the workspace "Beta" to "Acme".\n');
    expect((await parley("workspace", "list")).stdout).toBe("WORKSPACE  CHATBOTS\nAcme       2\n");
  });
});

it("takes no name for a key", () => {
  for (const text of ["prl_QSCmEIhoudPA", "prl_QSCmEIhoudPA_…", "prl_backup_secrets.json"]) {
    expect(withoutKeys(text)).toBe(text);
  }
});

describe("parley audit", () => {
  it("says who changed what, newest first", async () => {
    const user = `cli:${userInfo().username}`;
    const [newest, before, ...none] = await json("audit", "--limit", "2");
    expect(none).toEqual([]);
    const renamed = { time, actor: user, chatbot: 1, chatbotName: "Desk", action: "change" };
    expect(newest).toEqual({ ...renamed, detail: "workspaceName" });
    expect(before).toEqual({ ...renamed, detail: "instructions" });
    const [headings, first] = (await parley("audit")).stdout.split("\n");
    expect(headings).toMatch(/^TIME +ACTOR +CHATBOT +ACTION +DETAIL$/);
    expect(first).toMatch(new RegExp(`^\\S+Z  ${user} +1 Desk +change +workspaceName$`));
  });
});

describe("parley key", () => {
  it("makes, lists, changes, rotates and revokes keys", async () => {
    const made = await parley(
      "key",
      "create",
      "--chatbot",
      "Sales",
      "--name",
      "web",
      "--expires",
      "30d",
    );
    expect(made.code).toBe(0);
    const key = made.stdout.trim();
    const id = keyId(key)!;
    expect(made.stdout).toBe(`${key}\n`);
    expect(made.stderr).toMatch(
      new RegExp(
        `^The key prl_${id}_… opens chatbot 2 "Sales" until .+, to read, write, ask\\. .+\n$`,
      ),
    );
    const listed = await json("key", "list");
    expect(listed).toEqual([
      {
        id,
        chatbot: 2,
        chatbotName: "Sales",
        name: "web",
        state: "live",
        scopes: ["read", "write", "ask"],
        createdAt: time,
        expiresAt: time,
        revokedAt: null,
        lastUsedAt: null,
      },
    ]);
    const lasts = Date.parse(listed[0].expiresAt) - Date.parse(listed[0].createdAt);
    expect(Math.round(lasts / 86_400_000)).toBe(30);
    expect(await json("key", "list", "--chatbot", "1")).toEqual([]);

    const report = await json(
      "key",
      "create",
      "--chatbot",
      "2",
      "--scopes",
      "read",
      "--expires",
      "2100-01-01",
    );
    expect(report).toEqual({
      id: keyId(report.key),
      key: report.key,
      chatbot: 2,
      name: null,
      scopes: ["read"],
      expiresAt: "2100-01-01T00:00:00.000Z",
    });

    const changed = await json(
      "key",
      "change",
      `prl_${id}_…`,
      "--scopes",
      "ask,read",
      "--expires",
      "never",
      "--unset",
      "name",
    );
    expect(changed).toMatchObject({ id, scopes: ["ask", "read"], expiresAt: null, name: null });

    const rotated = await json("key", "rotate", `prl_${id}`, "--keep-for", "2h");
    expect(rotated).toEqual({
      id: keyId(rotated.key),
      key: rotated.key,
      chatbot: 2,
      name: null,
      expiresAt: null,
      scopes: ["ask", "read"],
      replaces: { id, expiresAt: time },
    });
    const left = Date.parse(rotated.replaces.expiresAt) - Date.now();
    expect(Math.round(left / 60_000)).toBe(120);

    const revoked = await here(["key", "revoke", "-"], settings(), `${rotated.key}\n`);
    expect(revoked.stdout).toBe(
      `The key prl_${rotated.id}_… of chatbot 2 "Sales" is revoked for ever.\n`,
    );
    await json("key", "change", id, "--expires", "0s");
    const states = (await json("key", "list")).map(
      (one: { readonly id: string; readonly state: string }) => [one.id, one.state],
    );
    expect(states).toEqual([
      [id, "expired"],
      [report.id, "live"],
      [rotated.id, "revoked"],
    ]);
    const { stdout } = await parley("key", "list");
    expect(stdout.split("\n")).toHaveLength(5);
    expect(stdout).toMatch(new RegExp(`^prl_${id} {2}2 Sales {2}- {5}expired`, "m"));
    for (const whole of [key, report.key, rotated.key]) expect(stdout).not.toContain(whole);
    const twice = await parley("key", "revoke", rotated.id);
    expect(twice.stderr).toContain(`The key prl_${rotated.id}_… was revoked before.\n`);
  });

  it("are made without being stored, too, as text or as JSON", async () => {
    const { code, stdout } = await parley("key", "generate");
    expect(code).toBe(0);
    expect(keyId(stdout.slice(0, -1))).not.toBeNull();
    const printed = JSON.parse((await parley("key", "generate", "--json")).stdout);
    expect(Object.keys(printed)).toEqual(["key"]);
    expect(keyId(printed.key)).not.toBeNull();
  });

  it("takes no key as an argument, and does not repeat it", async () => {
    const key = (await parley("key", "generate")).stdout.trim();
    for (const args of [
      ["key", "revoke", key],
      ["key", "rotate", key.slice(0, -1)],
      ["key", "change", `${key}x`, "--name", "n"],
      ["chatbot", "set", "--instructions", `The key is ${key}.`],
      ["nonsense", `--key=${key}`],
      ["key", "revoke", key.slice(4)],
      ["key", "list", key.slice(4)],
      ["key", "revoke", key.slice(0, 10)],
    ]) {
      const { code, stderr, stdout } = await parley(...args);
      expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
      expect(stderr).toMatch(oneLineAndHint);
      expect(stderr).not.toContain(key.slice(17, 30));
    }
  });
});
