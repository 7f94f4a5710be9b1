import { createHash, createHmac } from "node:crypto";
import { readFile, rm, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { beforeAll, expect, it } from "vitest";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here, shell } from "./here.ts";

const directory = temporaryFolder();
let key: string;
beforeAll(async () => {
  key = (await here(["key", "generate"], {})).stdout.trim();
  expect((await parley("migrate")).code).toBe(0);
});

const settings = { PARLEY_STORE: "sqlite", PARLEY_DATA_DIR: join(directory, "data") };
const parley = (...args: ReadonlyArray<string>) =>
  here(args, { ...settings, PARLEY_TEST_KEY: key });

const json = async (...args: ReadonlyArray<string>) =>
  JSON.parse((await parley(...args, "--json")).stdout);

const declare = async (...chatbots: ReadonlyArray<object>) => {
  const file = join(directory, "chatbots.json");
  const $schema = "../docs/provisioning.schema.json";
  await writeFile(file, JSON.stringify({ $schema, chatbots }));
  return file;
};

const bot = { workspace: "Acme", name: "Helpdesk" };

it("parley provision shows the changes, applies them, and then has nothing left to change", async () => {
  const keys = [{ key: "${PARLEY_TEST_KEY}", scopes: ["read"] }];
  const file = await declare({ ...bot, keys });
  const id = key.slice(4, 16);
  const created = `create chatbot "Helpdesk" in workspace "Acme" with the key prl_${id}_…\n`;
  const plan = await parley("provision", file, "--dry-run");
  expect(plan).toEqual({ code: 0, stdout: created, stderr: "" });
  expect(await json("chatbot", "list")).toEqual([]);
  expect(await json("audit")).toEqual([]);
  expect((await parley("provision", file)).stdout).toBe(created);
  const nothing = { code: 0, stdout: "There is nothing to change.\n", stderr: "" };
  expect(await parley("provision", file)).toEqual(nothing);
  expect(await parley("provision", file, "--dry-run")).toEqual(nothing);

  // Fields that the file does not name return to their defaults, even if a command has changed them.
  await parley("chatbot", "set", "--model", "large", "--description", "Helps");
  await declare({ ...bot, helloMessage: "Hi", keys: [{ ...keys[0]!, scopes: ["ask"] }] });
  const { stdout } = await parley("provision", file, "--dry-run");
  expect(stdout).toBe(
    'change chatbot "Helpdesk" in workspace "Acme"\n' +
      '  description: "Helps" -> ""\n' +
      '  helloMessage: null -> "Hi"\n' +
      '  model: "large" -> null\n' +
      `change key prl_${id}_… for chatbot "Helpdesk" in workspace "Acme"\n` +
      '  scopes: ["read"] -> ["ask"]\n',
  );
  const done = await json("provision", file);
  expect(done).toMatchObject({
    dryRun: false,
    changes: [{ fields: [{}, { field: "helloMessage", before: null, after: "Hi" }, {}] }, {}],
  });
  expect(await parley("provision", file)).toEqual(nothing);
  const [change] = await json("audit", "--limit", "1");
  expect(change.actor).toMatch(/^cli:/);
  for (const printed of [plan.stdout, stdout, done, change])
    expect(JSON.stringify(printed)).not.toContain(key.slice(17));
});

it("parley provision can let a key sign visitor tokens, and never prints its signing secret", async () => {
  const secret = createHmac("sha256", key).update("parley-visitor").digest("hex");
  const of = (more: object) =>
    declare({ ...bot, keys: [{ key: "${PARLEY_TEST_KEY}", scopes: ["ask"], ...more }] });
  for (const [more, change, expected] of [
    [{ visitors: true }, "false -> true", true],
    [{}, null, true],
    [{ visitors: false }, "true -> false", false],
  ] as const) {
    const { stderr, stdout } = await parley("provision", await of(more));
    if (change === null) expect(stdout).not.toContain("visitors");
    else expect(stdout).toContain(`\n  visitors: ${change}\n`);
    expect(stdout + stderr).not.toContain(secret);
    expect((await json("key", "list"))[0].visitors).toBe(expected);
  }
  const { stdout } = await parley("audit", "--json");
  expect(stdout).not.toContain(secret);
});

it("parley provision checks a key together with the fields that it keeps", async () => {
  const limits = { visitors: true, visitorRatePerMinute: 10, tokensPerDay: 1000 };
  const code = async (more: object) => {
    const file = await declare({ ...bot, keys: [{ key, scopes: ["ask"], ...more }] });
    return (await parley("provision", file)).code;
  };
  expect(await code({ anonymous: true, ...limits, tokensPerDay: null })).toBe(1);
  expect(await code({ anonymous: true, ...limits })).toBe(0);
  // Limits that the file does not give remain as they are.
  expect(await code({ anonymous: true })).toBe(0);
  expect(await code({ tokensPerDay: null })).toBe(1);
  expect(await code({ anonymous: false, visitors: false })).toBe(0);
});

it("parley provision reads UTF-8 with a byte order mark and CRLF, and rejects other encodings", async () => {
  const file = join(directory, "encoded.json");
  const text = JSON.stringify({ chatbots: [{ workspace: "W", name: "M\u00fcller" }] }, null, 1);
  const provision = async (bytes: Uint8Array) => {
    await writeFile(file, bytes);
    return parley("provision", file, "--dry-run");
  };
  const windows = Buffer.from(`\ufeff${text.replaceAll("\n", "\r\n")}`);
  expect((await provision(windows)).stdout).toBe('create chatbot "M\u00fcller" in workspace "W"\n');
  const { code, stderr, stdout } = await provision(Buffer.from(text, "latin1"));
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toContain("encoded.json: the file is not UTF-8");
});

it("parley provision reads ${NAME} from the file that NAME_FILE names", async () => {
  const secret = join(directory, "key");
  await writeFile(secret, `${key}\n`);
  const file = await declare({ ...bot, keys: [{ key: "${SECRET_KEY}", scopes: ["read"] }] });
  process.env["SECRET_KEY_FILE"] = secret;
  try {
    expect((await parley("provision", file, "--dry-run")).stderr).toBe("");
    await rm(secret);
    expect((await parley("provision", file, "--dry-run")).stderr).toContain("SECRET_KEY_FILE: ");
  } finally {
    delete process.env["SECRET_KEY_FILE"];
  }
});

it("parley provision rejects a file with mistakes, names them all, and writes nothing", async () => {
  const before = await parley("audit", "--json");
  const keyOf = (more: object) => ({ key: "${PARLEY_TEST_KEY}", scopes: ["read"], ...more });
  const withKeys = (...keys: ReadonlyArray<object>) => ({ ...bot, keys });
  const repeatedKey = `the key prl_${key.slice(4, 16)}_… is declared twice`;
  const blank = { ...bot, model: "", moderationErrorMessage: "\u0085" };
  const notATime = "chatbots.0.keys.0.expiresAt: is neither a date nor an ISO";
  for (const [mistake, ...chatbots] of [
    ["chatbots.0.model: is blank; chatbots.1.name: Missing key", blank, { workspace: "W" }],
    ["chatbots.0.moderationErrorMessage: is blank; ", blank],
    ["chatbots.0.keys.0.scopes: Missing key", withKeys({ key })],
    ["scopes: must name at least one of read, write, ask", withKeys(keyOf({ scopes: [] }))],
    ["${NOT_SET} is not set.", withKeys(keyOf({ key: "${NOT_SET}" }))],
    ["is neither a key nor ${NAME}", withKeys(keyOf({ key: `${key.slice(0, -1)}_` }))],
    ["is in the past.", withKeys(keyOf({ expiresAt: "2020-01-01" }))],
    ["is not a time between 1970 and 9999", withKeys(keyOf({ expiresAt: "0000-01-01" }))],
    [notATime, withKeys(keyOf({ expiresAt: "2031-02-29" }))],
    [notATime, withKeys(keyOf({ expiresAt: "2031-04-31T00:00:00Z" }))],
    [notATime, withKeys(keyOf({ expiresAt: "2031-01-01T25:00Z" }))],
    ['chatbot "Helpdesk" in workspace "Acme" is declared twice', bot, bot],
    [repeatedKey, withKeys(keyOf({}), keyOf({ key }))],
    [repeatedKey, withKeys(keyOf({})), { ...withKeys(keyOf({ key })), name: "C" }],
  ] as ReadonlyArray<readonly [string, ...Array<object>]>) {
    const { code, stderr } = await parley("provision", await declare(...chatbots));
    expect(code).toBe(1);
    expect(stderr).toContain(mistake);
    expect(stderr).not.toContain(key.slice(17, -1));
  }
  for (const expiresAt of ["2032-02-29", "2031-04-30T23:59+02:00"]) {
    const file = await declare(withKeys(keyOf({ expiresAt })));
    expect((await parley("provision", file, "--dry-run")).code).toBe(0);
  }
  await writeFile(join(directory, "chatbots.json"), `{"chatbots": [\n"${key}" ]`);
  const broken = await parley("provision", join(directory, "chatbots.json"));
  expect(broken.stderr).toMatch(/: the file is not valid JSON.*\.\nhint: /);
  expect(broken.stderr).not.toContain(key.slice(17));
  expect(await parley("audit", "--json")).toEqual(before);
});

it("an exported file moves chatbots and keys to another database, and each key and its visitors' tokens stay valid", async () => {
  const [one, two] = ["from", "to"].map((name) =>
    shell({ PARLEY_STORE: "sqlite", PARLEY_DATA_DIR: join(directory, name) }),
  ) as [ReturnType<typeof shell>, ReturnType<typeof shell>];
  for (const { parley } of [one, two]) expect((await parley("migrate")).code).toBe(0);
  await one.json("chatbot create --workspace Acme --name Shop --hello-message Hi");
  const { key: fullKey } = await one.json("key create --name site --visitors");
  const revokedKey = await one.json("key create");
  await one.json(`key revoke ${revokedKey.id}`);
  const file = join(directory, "moved.json");
  const { stdout } = await one.parley(`provision --export ${file}`);
  expect(stdout).toMatch(/^Wrote 1 chatbot and 1 key\./);
  expect((await stat(file)).mode & 0o777).toBe(0o600);
  const content = JSON.parse(await readFile(file, "utf8"));
  const sha256 = createHash("sha256").update(fullKey).digest("hex");
  expect(content.chatbots[0]).toMatchObject({
    workspace: "Acme",
    name: "Shop",
    helloMessage: "Hi",
    keys: [
      {
        keyId: fullKey.slice(4, 16),
        keyHash: sha256,
        signingSecret: createHmac("sha256", fullKey).update("parley-visitor").digest("hex"),
      },
    ],
  });
  expect((await two.parley(`provision ${file}`)).code).toBe(0);
  expect((await two.parley(`provision ${file}`)).stdout).toBe("There is nothing to change.\n");
  const keysOf = async ({ json }: typeof one) =>
    (await json("key list"))
      .filter(({ state }: { state: string }) => state === "live")
      .map(({ createdAt: _, lastUsedAt: __, ...key }: Record<string, unknown>) => key);
  expect(await keysOf(two)).toEqual(await keysOf(one));
  // The file is never overwritten, and a key is declared in one way.
  expect((await one.parley(`provision --export ${file}`)).code).toBe(1);
  for (const key of [
    { scopes: ["read"] },
    { keyId: "a".repeat(12), scopes: ["read"] },
    { keyId: "a".repeat(12), keyHash: sha256, visitors: true, scopes: ["read"] },
    { key: fullKey, keyHash: sha256, scopes: ["read"] },
  ]) {
    const wrong = await declare({ ...bot, keys: [key] });
    const { code, stderr } = await two.parley(`provision ${wrong}`);
    expect([code, stderr]).toEqual([1, expect.stringContaining("keyHash")]);
  }
});
