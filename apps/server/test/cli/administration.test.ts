import { defaultSettings, keyId } from "@parley/core";
import { ChatbotId, ChatStore } from "@parley/core/ports";
import { layerSqlite } from "@parley/store-sqlite";
import { Effect, String } from "effect";
import { createHmac } from "node:crypto";
import { userInfo } from "node:os";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { redactKeys } from "../../src/cli/CommandErrors.ts";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here, oneLineAndHint, shell } from "./here.ts";

beforeAll(async () => expect((await parley("migrate")).code).toBe(0));

const dataDir = temporaryFolder();
const settings = { PARLEY_STORE: "sqlite", PARLEY_DATA_DIR: dataDir };
const { json, parley } = shell(settings);

const time = expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);

const defaults = { description: "", ...defaultSettings };

it("chatbots are created, shown and changed", async () => {
  expect((await parley("chatbot show")).stderr).toContain("There are no chatbots");
  expect((await parley("chatbot create --name Helpdesk")).code).toBe(2);
  const create = "chatbot create --workspace Acme --name Helpdesk --hello-message Hello!";
  expect(await parley(`${create} --retention-days 30`)).toEqual({
    code: 0,
    stdout: 'Created chatbot 1 "Helpdesk" in workspace "Acme".\n',
    stderr: "",
  });
  const named = { id: 1, workspace: "Acme", name: "Helpdesk" };
  const helpdesk = { ...named, ...defaults, helloMessage: "Hello!", retentionDays: 30 };
  expect(await json("chatbot show")).toEqual(helpdesk);

  const description = "Sells\n\x07";
  const sales = `chatbot create --workspace Acme --name Sales --description ${description}`;
  const named2 = { id: 2, workspace: "Acme", name: "Sales" };
  expect(await json(sales)).toEqual({ ...named2, ...defaults, description });
  expect((await parley("chatbot list")).stdout).toBe(
    "ID  WORKSPACE  NAME      DESCRIPTION\n" +
      "1   Acme       Helpdesk\n" +
      "2   Acme       Sales     Sells \ufffd\n",
  );

  // U+0085 is white space in Unicode.
  const blank = await parley("chatbot set --chatbot Sales --moderation-error-message \u0085");
  expect(blank).toMatchObject({ code: 1, stderr: expect.stringMatching(/^parley: .*is blank/) });

  const change = {
    workspace: "Beta",
    name: "Desk",
    description: "Helps",
    model: "large",
    moderationErrorMessage: "No.",
    instructions: "Be\nbrief.",
    moderation: "endpoint",
    knowledge: "manuals",
    notFoundMessage: "Ask",
    sourceUrl: "https://a.example/{path}",
  };
  const flags = Object.entries(change).map(
    ([name, value]) => `--${String.kebabCase(name)} ${value}`,
  );
  const lists = "--suggested-question One? --suggested-question Two?";
  const unset = "--unset hello-message --unset retention-days";
  expect(await json(`chatbot set --chatbot Helpdesk ${flags.join(" ")} ${lists} ${unset}`)).toEqual(
    { id: 1, ...defaults, ...change, suggestedQuestions: ["One?", "Two?"] },
  );
  expect((await parley("chatbot show --chatbot 1")).stdout).toContain(
    "instructions            Be\n                        brief.\n",
  );
  expect((await parley("chatbot set --chatbot 1 --model small")).stdout).toBe(
    'Changed chatbot 1 "Desk" in workspace "Beta".\n',
  );
  expect((await parley("chatbot set --chatbot 1 --workspace Acme")).stdout).toBe(
    'Changed chatbot 1 "Desk" in workspace "Acme".\n',
  );
});

it("the audit log lists changes with their actors, newest first", async () => {
  const user = `cli:${userInfo().username}`;
  const changed = { time, actor: user, chatbot: 1, chatbotName: "Desk", action: "change" };
  expect(await json("audit --limit 2")).toEqual([
    { ...changed, detail: "workspaceName" },
    { ...changed, detail: "model" },
  ]);
  const [headings, first] = (await parley("audit")).stdout.split("\n");
  expect(headings).toMatch(/^TIME +ACTOR +CHATBOT +CHATBOT NAME +ACTION +DETAIL$/);
  expect(first).toMatch(new RegExp(`^\\S+Z  ${user} +1 +Desk +change +workspaceName$`));
});

it("keys are created, listed, changed, rotated and revoked", async () => {
  const creation = await parley("key create --chatbot Sales --name web --expires 30d");
  expect(creation.code).toBe(0);
  const key = creation.stdout.trim();
  const id = keyId(key)!;
  expect(creation.stdout).toBe(`${key}\n`);
  expect(creation.stderr).toBe(`The key prl_${id}_… for chatbot 2 "Sales" is shown only once.\n`);
  const rows = await json("key list");
  const common = { id, chatbot: 2, chatbotName: "Sales", name: "web", createdAt: time };
  const scopes = ["read", "write", "ask"];
  const ends = { expiresAt: time, revokedAt: null, lastUsedAt: null };
  const bounds = { ratePerMinute: null, visitorRatePerMinute: null, tokensPerDay: null };
  const widget = { visitors: false, origins: [], anonymous: false };
  expect(rows).toEqual([{ ...common, state: "live", scopes, ...ends, ...bounds, ...widget }]);
  const lifetime = Date.parse(rows[0].expiresAt) - Date.parse(rows[0].createdAt);
  expect(Math.round(lifetime / 86_400_000)).toBe(30);
  expect(await json("key list --chatbot 1")).toEqual([]);

  const report = await json(
    "key create --chatbot 2 --scopes read --expires 2100-01-01 --rate 90/min",
  );
  expect(report).toEqual({
    id: keyId(report.key),
    key: report.key,
    chatbot: 2,
    name: null,
    scopes: ["read"],
    expiresAt: "2100-01-01T00:00:00.000Z",
    ...bounds,
    ratePerMinute: 90,
    signingSecret: null,
    origins: [],
    anonymous: false,
  });
  const everything = await json("key create --chatbot 2 --scopes post,read,write,ask,delete");
  expect(everything.scopes).toEqual([...scopes, "delete", "post"]);
  const changed = await json(`key set prl_${id}_… --scopes ask,read --expires never --name `);
  expect(changed).toMatchObject({ id, scopes: ["read", "ask"], expiresAt: null, name: null });

  expect(await json(`key set ${id} --rate 60/min`)).toMatchObject({ id, ratePerMinute: 60 });
  expect(await json(`key set ${id} --rate none`)).toMatchObject({ id, ratePerMinute: null });
  for (const rate of ["0/min", "60", "2000000/min", "1/s"])
    expect((await parley(`key set ${id} --rate ${rate}`)).code).toBe(2);

  const rotated = await json(`key rotate prl_${id} --keep-for 2h`);
  expect(rotated).toEqual({
    id: keyId(rotated.key),
    key: rotated.key,
    chatbot: 2,
    name: null,
    expiresAt: null,
    scopes: ["read", "ask"],
    replaces: { id, expiresAt: time },
    signingSecret: null,
  });
  const keptMillis = Date.parse(rotated.replaces.expiresAt) - Date.now();
  expect(Math.round(keptMillis / 60_000)).toBe(120);

  const revoked = await parley("key revoke -", `${rotated.key}\n`);
  expect(revoked.stdout).toBe(
    `The key prl_${rotated.id}_… for chatbot 2 "Sales" was permanently revoked.\n`,
  );
  await json(`key set ${id} --expires 0s`);
  const { stdout } = await parley("key list");
  expect(stdout).toMatch(new RegExp(`^${id} +2 +Sales +- +expired +read,ask `, "m"));
  expect(stdout).toMatch(new RegExp(`^${report.id} .* live `, "m"));
  expect(stdout).toMatch(new RegExp(`^${rotated.id} .* revoked `, "m"));
  for (const whole of [key, report.key, rotated.key]) expect(stdout).not.toContain(whole);
  const twice = await parley(`key revoke ${rotated.id}`);
  expect(twice.stderr).toContain(`no key prl_${rotated.id}_…`);
});

it("a key for visitors is printed with its signing secret, which no list shows", async () => {
  const flags = "--visitors --visitor-rate 10/min --budget 200000/day";
  const creation = await parley(`key create --chatbot Sales ${flags}`);
  const key = creation.stdout.trim();
  const secret = createHmac("sha256", key).update("parley-visitor").digest("hex");
  expect(creation.stderr.split("\n")[1]).toBe(
    `The signing secret for key ${keyId(key)}'s visitor tokens: ${secret}`,
  );
  const id = keyId(key)!;
  const [row] = (await json("key list")).filter((each: { id: string }) => each.id === id);
  const bounds = { visitorRatePerMinute: 10, tokensPerDay: 200_000 };
  expect(row).toMatchObject({ visitors: true, ...bounds });
  expect(JSON.stringify(await json("key list"))).not.toContain(secret);
  const rotated = await json(`key rotate ${id}`);
  const fresh = createHmac("sha256", rotated.key).update("parley-visitor").digest("hex");
  expect(rotated.signingSecret).toBe(fresh);
  expect(await json(`key set ${id} --budget none --visitor-rate none`)).toMatchObject({
    tokensPerDay: null,
    visitorRatePerMinute: null,
  });
});

it("a key for a widget is printed as a script tag, which does not contain the key", async () => {
  const create =
    "key create --chatbot Sales --widget --origins https://shop.example,http://[::1]:8080";
  for (const incomplete of ["", "--visitor-rate 1/min"])
    expect((await parley(`${create} ${incomplete}`)).code).toBe(2);
  const refusedOrigins = ["https://shop.example/", "shop.example", "https://a;script-src", "*"];
  for (const origin of [...refusedOrigins, "https://shop.example:99999", "https://:80"])
    expect((await parley(`key create --widget --token-url /t --origins ${origin}`)).code).toBe(2);
  for (const url of ["chat.example", "https://chat.example/?a=1", "https://chat.example/#a"]) {
    const { code, stderr } = await parley(`${create} --token-url /t --url ${url}`);
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("--url") });
  }
  const readOnly = await parley(`${create} --token-url /t --scopes read`);
  expect(readOnly).toMatchObject({ code: 2, stderr: expect.stringContaining("--scopes") });
  const bounds = "--visitor-rate 10/min --budget 200000/day";
  const { stderr, stdout } = await parley(`${create} ${bounds} --url https://chat.example/`);
  const [, id] = /data-key="(\w{12})"/.exec(stdout)!;
  expect(stdout).toBe(
    `<script src="https://chat.example/widget.js" data-key="${id}" async></script>\n`,
  );
  expect(stderr).toBe("");
  const withTokenUrl = await parley(`${create} --token-url /chat-token?a=1&b="`);
  expect(withTokenUrl.stdout).toContain(' data-token-url="/chat-token?a=1&amp;b=&quot;" async>');
  expect(withTokenUrl.stderr).toMatch(
    /^The signing secret for key \w{12}'s visitor tokens: \w{64}\n$/,
  );
  const keys = await json("key list --chatbot Sales");
  const origins = ["https://shop.example", "http://[::1]:8080"];
  expect(keys.filter((key: { origins: Array<string> }) => key.origins.length > 0)).toMatchObject([
    { id, visitors: true, anonymous: true, origins, tokensPerDay: 200_000 },
    { visitors: true, anonymous: false, origins, tokensPerDay: null },
  ]);
  const mayDelete = await parley(`${create} --token-url /t --scopes read,write,ask,delete`);
  expect(mayDelete.code).toBe(0);
});

it("flags that would have no effect on a key are rejected, and the error names the needed flag", async () => {
  const before = await json("key list");
  for (const [flags, neededFlag] of [
    ["create --chatbot Sales --url https://chat.example", "--widget"],
    ["create --chatbot Sales --visitors --token-url /t", "--widget"],
    ["create --chatbot Sales --visitor-rate 10/min", "--visitors"],
    [`set ${before[0].id} --origins https://shop.example`, "--visitors"],
  ] as const) {
    const { code, stderr, stdout } = await parley(`key ${flags}`);
    expect({ code, stdout }, flags).toEqual({ code: 2, stdout: "" });
    expect(stderr, flags).toContain(neededFlag);
  }
  expect(await json("key list")).toEqual(before);
  const none = "--visitor-rate none --origins=";
  expect((await parley(`key set ${before[0].id} ${none}`)).code).toBe(0);
});

it("a visitor token is signed with a live key from the store and recorded in the audit log", async () => {
  const key = (
    await parley("key create --chatbot Sales --visitors --scopes read,ask")
  ).stdout.trim();
  const id = keyId(key)!;
  const secret = createHmac("sha256", key).update("parley-visitor").digest("hex");
  for (const [flags, seconds, scope] of [
    ["--expires 15m", 900, undefined],
    ["--scopes read", 3600, "read"],
    ["--expires 24h", 86_400, undefined],
  ] as const) {
    const { stdout } = await parley(`key token ${id} ${flags} --user-ref user-7`);
    const [head, body, signature] = stdout.trim().split(".") as [string, string, string];
    const text = createHmac("sha256", secret).update(`${head}.${body}`).digest("base64url");
    expect(signature).toBe(text);
    const [header, claims] = [head, body].map((part) =>
      JSON.parse(Buffer.from(part, "base64url").toString()),
    );
    expect(header).toMatchObject({ alg: "HS256", kid: id });
    expect(claims).toEqual({ sub: "user-7", exp: expect.any(Number), ...(scope && { scope }) });
    expect(Math.abs(claims.exp - Date.now() / 1000 - seconds)).toBeLessThan(30);
  }
  const noted = await json("audit --user-ref user-7 --limit 3");
  const detail = expect.stringMatching(new RegExp(`^${id}: token for a userRef \\S+$`));
  expect(noted).toMatchObject([1, 2, 3].map(() => ({ action: "read", detail })));
  expect(JSON.stringify(noted)).not.toContain("user-7");
  for (const wrong of [
    "--user-ref=",
    `--user-ref ${"u".repeat(61)}`,
    "--user-ref u --expires 25h",
    "--user-ref u --expires never",
  ])
    expect((await parley(`key token ${id} ${wrong}`)).code).toBe(2);
  expect((await parley("key token --user-ref u")).stderr).toContain("More than one key");
  await parley(`key revoke ${id}`);
  expect((await parley(`key token ${id} --user-ref u`)).code).toBe(1);
});

it("no command accepts a key as an argument or repeats it in its output", async () => {
  for (const text of ["prl_QSCmEIhoudPA", "prl_QSCmEIhoudPA_…", "prl_backup_secrets.json"]) {
    expect(redactKeys(text)).toBe(text);
  }
  const { key } = await json("key generate");
  expect(keyId(key)).not.toBeNull();
  for (const args of [
    ["key", "revoke", key],
    ["key", "rotate", key.slice(0, -1)],
    ["key", "set", `${key}x`, "--name", "n"],
    ["chatbot", "set", "--instructions", `The key is ${key}.`],
    ["nonsense", `--key=${key}`],
    ["key", "revoke", key.slice(4)],
    ["key", "revoke", key.slice(0, 10)],
  ]) {
    const { code, stderr, stdout } = await here(args, settings);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(oneLineAndHint);
    expect(stderr).not.toContain(key.slice(17, 30));
  }
});

it("a chatbot is deleted, with its keys and chats, only if --yes is given", async () => {
  const chat = { name: null, userRef: null, helloMessage: null };
  await ChatStore.use((store) =>
    Effect.andThen(
      store.createChat(ChatbotId.make(2), chat, null),
      store.createChat(ChatbotId.make(2), chat, null),
    ),
  ).pipe(Effect.provide(layerSqlite({ file: join(dataDir, "parley.db") })), Effect.runPromise);
  const what = 'chatbot 2 "Sales" in workspace "Acme" with 2 chats and 10 keys';
  expect(await parley("chatbot delete Sales")).toEqual({
    code: 1,
    stdout: "",
    stderr: `parley: Nothing was deleted: --yes would delete ${what}.\nhint: add --yes to delete the chatbot permanently.\n`,
  });
  expect(await parley("chatbot delete Sales --yes")).toMatchObject({
    code: 0,
    stdout: `Deleted ${what}.\n`,
  });
  expect(await json("key list")).toEqual([]);
  expect(await json("chatbot delete 1 --yes")).toEqual({ id: 1, chats: 0, keys: 0 });
  expect(await json("chatbot list")).toEqual([]);
  expect(await json("audit --limit 1")).toMatchObject([
    { chatbot: 1, chatbotName: null, action: "delete", detail: "Desk" },
  ]);
});
