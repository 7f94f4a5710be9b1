/**
 * Commands that run beside a server with a SQLite file, all at the most verbose log level: the server applies
 * their changes, and a key appears only in the output that first prints it.
 */
import { keyId } from "@parley/core";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freePort } from "../FreePort.ts";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here } from "./here.ts";
import { startServer, type CommandResult } from "./run.ts";

const directory = temporaryFolder();
let settings: Readonly<Record<string, string>>;
let server: Awaited<ReturnType<typeof startServer>>;
let management: string;
/** All output of commands, apart from newly printed keys. */
let output = "";
const keys: Array<string> = [];

beforeAll(async () => {
  const port = String(await freePort());
  management = `http://127.0.0.1:${port}`;
  settings = {
    PARLEY_DATA_DIR: join(directory, "data"),
    PARLEY_PORT: "0",
    PARLEY_MANAGEMENT_PORT: port,
  };
  server = await startServer(settings, "--log-level", "all");
  keys.push((await readFile(join(directory, "data/first-key"), "utf8")).trim());
}, 60_000);

afterAll(async () => {
  server?.child.kill("SIGINT");
  await server?.exit;
});

/** Runs a command, whose standard output may contain a new key once. */
const parley = async (
  args: ReadonlyArray<string>,
  input = "",
  more = {},
): Promise<CommandResult> => {
  const result = await here([...args, "--log-level", "all"], { ...settings, ...more }, input);
  expect({ args, ...result }).toMatchObject({ code: 0 });
  output += result.stderr;
  const newKey = /prl_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}_[0-9A-Za-z]{6}/.exec(result.stdout)?.[0];
  if (newKey === undefined) output += result.stdout;
  else {
    keys.push(newKey);
    output += result.stdout.replace(newKey, "");
  }
  return result;
};

const statusWith = async (key: string) =>
  (await fetch(`${server.origin}/api/details`, { headers: { "x-api-key": key } })).status;

/** Waits until a request with the key results in the status. */
const becomes = (key: string, status: number) =>
  expect.poll(() => statusWith(key), { timeout: 10_000, interval: 20 }).toBe(status);

it("a running server applies what commands change, and a key appears only in the output that first prints it", async () => {
  const first = keys[0]!;
  expect(await statusWith(first)).toBe(200);

  const { stdout: created } = await parley(["key", "create", "--name", "web", "--json"]);
  const { key } = JSON.parse(created);
  await becomes(key, 200);
  const { stdout: rotated } = await parley(["key", "rotate", keyId(key)!, "--keep-for", "0s"]);
  const fresh = rotated.trim();
  await becomes(fresh, 200);
  await becomes(key, 401);
  await parley(["key", "set", keyId(fresh)!, "--scopes", "write"]);
  await becomes(fresh, 403);
  await parley(["key", "revoke", "-"], fresh);
  await becomes(fresh, 401);
  await parley(["key", "list"]);
  await parley(["key", "list", "--json"]);

  const generated = (await parley(["key", "generate"])).stdout.trim();
  const file = join(directory, "chatbots.json");
  const declared = [{ key: "${GIVEN_KEY}", scopes: ["read"] }];
  const bot = { workspace: "Default workspace", name: "Parley", helloMessage: "Provisioned" };
  await writeFile(file, JSON.stringify({ chatbots: [{ ...bot, keys: declared }] }));
  await parley(["provision", file, "--dry-run"], "", { GIVEN_KEY: generated });
  await parley(["provision", file], "", { GIVEN_KEY: generated });
  await becomes(generated, 200);

  await parley(["chatbot", "set", "--description", "Changed"]);
  const get = async (path: string) =>
    (await fetch(`${server.origin}/api${path}`, { headers: { "x-api-key": first } })).json();
  await expect
    .poll(() => get("/details"), { timeout: 10_000, interval: 20 })
    .toMatchObject({ data: { chatBotDescription: "Changed" } });

  // The provisioned chatbot has a hello message.
  const conversation = await parley(["chat"], "How do I change the port?");
  expect(conversation.stdout).toContain("`PARLEY_PORT` is the port");
  const id = /^Started chat (\d+)\.$/m.exec(conversation.stderr)![1];
  expect(await get(`/chats/${id}/history`)).toMatchObject({
    data: [{ question: "How do I change the port?" }, { question: "", answer: "Provisioned" }],
  });
  await parley(["chat", "--chat", id!], "And the host?");
  await parley(["audit"]);
  await parley(["usage", "--json"]);
  expect((await parley(["doctor"])).stdout).toMatch(
    /^ok {7}database .*parley\.db has 1 MB .*, open in process \d+\)\.$/m,
  );

  // Invalid keys that a server may receive.
  for (const wrong of [`${first}x`, first.slice(0, -1), first.replace(/.$/, "_"), key]) {
    expect(await statusWith(wrong)).toBe(401);
    await fetch(`${server.origin}/api/details?key=${wrong}`);
    await fetch(`${server.origin}/api/${wrong}`, { headers: { authorization: `Bearer ${wrong}` } });
  }
  output += await (await fetch(`${management}/metrics`)).text();

  await parley(["key", "revoke", "-"], generated);
  await becomes(generated, 401);

  server.child.kill("SIGINT");
  await server.exit;
  output += server.output.stdout + server.output.stderr;

  expect(keys).toHaveLength(4);
  for (const printedKey of keys) {
    expect(output).toContain(keyId(printedKey)!);
    const secret = printedKey.slice("prl_".length + 12 + 1);
    expect(output.split("\n").filter((text) => text.includes(secret.slice(0, 20)))).toEqual([]);
  }
}, 60_000);
