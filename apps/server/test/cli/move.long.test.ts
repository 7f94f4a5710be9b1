/**
 * Moves everything from a SQLite file to PostgreSQL with the commands that docs/operations.md documents.
 */
import { spawnSync } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { expect, inject, it } from "vitest";
import { visitorToken } from "../visitorToken.ts";
import { withoutSettings } from "../withoutSettings.ts";
import { temporaryFolder } from "../TemporaryFolder.ts";
import { here } from "./here.ts";
import { main, startServer } from "./run.ts";

const directory = temporaryFolder();

const oldSettings = { PARLEY_DATA_DIR: join(directory, ".parley") };
const schema = { PARLEY_SCHEMA: `move_${process.pid}` };
const newSettings = { ...schema, DATABASE_URL: inject("postgresUrl") };

/** Starts a server, and stops it after the calls. */
const withServer = async (
  settings: Readonly<Record<string, string>>,
  calls: (call: (key: string, path: string, body?: object) => Promise<any>) => Promise<void>,
) => {
  const { child, exit, origin } = await startServer({ ...settings, PARLEY_PORT: "0" });
  try {
    await calls(async (key, path, body) => {
      const response = await fetch(`${origin}${path}`, {
        method: body === undefined ? "GET" : "POST",
        headers: { "x-api-key": key, "content-type": "application/json" },
        ...(body !== undefined && { body: JSON.stringify(body) }),
      });
      const content = (await response.json()) as { data: any };
      return response.ok ? content.data : response.status;
    });
  } finally {
    child.kill("SIGINT");
    await exit;
  }
};

it("the documented commands move chatbots, keys and chats to PostgreSQL, where keys and tokens stay valid", async () => {
  const old = async (...args: ReadonlyArray<string>) => {
    const { code, stderr, stdout } = await here([...args, "--json"], oldSettings);
    expect([code, stderr]).toEqual([0, expect.anything()]);
    return JSON.parse(stdout);
  };
  await here(["migrate"], oldSettings);
  await old("chatbot", "create", "--workspace", "Acme", "--name", "Shop", "--hello-message", "Hi");
  await old("chatbot", "create", "--workspace", "Acme", "--name", "Desk", "--retention-days", "90");
  await old("chatbot", "create", "--workspace", "Other", "--name", "Empty");
  const scopes = ["--scopes", "read,write,ask,delete"];
  const { key } = await old("key", "create", "--chatbot", "Shop", "--visitors", ...scopes);
  const { key: deskKey } = await old("key", "create", "--chatbot", "Desk", "--rate", "60/min");
  const revoked = await old("key", "create", "--chatbot", "Desk");
  await old("key", "revoke", revoked.id);
  const token = visitorToken(key, "ann", { scope: "read write ask" });

  const read: Record<string, unknown> = {};
  let erasedChat = 0;
  const readAll = async (call: (key: string, path: string) => Promise<any>) => {
    for (const each of [key, token, deskKey, revoked.key]) {
      const list = await call(each, "/api/chats?limit=100");
      read[each] = list;
      for (const { id } of Array.isArray(list) ? list : [])
        read[`${each} ${id}`] = await call(each, `/api/chats/${id}/history`);
    }
    return structuredClone(read);
  };
  let before: unknown;
  await withServer(oldSettings, async (call) => {
    for (const each of [key, token, deskKey]) {
      const chat = await call(each, "/api/chats", { name: "a chat" });
      await call(each, "/ask", { chat_id: chat.id, question: "Which port?" });
    }
    erasedChat = (await call(key, "/api/chats", { name: "erased" })).id;
    await old("chats", "erase", "--chatbot", "Shop", "--id", String(erasedChat));
    before = await readAll(call);
  });
  expect(read[revoked.key]).toBe(401);
  expect(Object.keys(read).length).toBeGreaterThan(6);
  const chatbots = await old("chatbot", "list");

  const page = await readFile(new URL("../../../../docs/operations.md", import.meta.url), "utf8");
  const [, commands] = /## Move to PostgreSQL\n[^]*?```sh\n([^]*?)```/.exec(page)!;
  expect(commands!.trim().split("\n").length).toBeLessThanOrEqual(3);
  await writeFile(
    join(directory, "move.sh"),
    `set -e; parley() { "$NODE" "$MAIN" "$@"; }\n${commands!.replace(/(?<=DATABASE_URL=)\S+/, inject("postgresUrl"))}`,
  );
  const move = () =>
    spawnSync("bash", [join(directory, "move.sh")], {
      cwd: directory,
      encoding: "utf8",
      env: { ...withoutSettings(), ...schema, NODE: process.execPath, MAIN: main },
    });
  const { status, stderr, stdout } = move();
  expect([status, stderr]).toEqual([0, expect.anything()]);
  expect(stdout).toContain("Copied 3 chatbots, 3 keys, 3 chats.");
  // Nothing is copied twice.
  expect(move().stderr).toContain("The database already has chatbots, and was not changed.");

  await withServer(newSettings, async (call) => {
    expect(await readAll(call)).toEqual(before);
    // A client may remember the id of a chat that was erased before.
    expect((await call(token, "/api/chats", {})).id).toBeGreaterThan(erasedChat);
  });
  const withoutId = ({ id: _, ...chatbot }: { readonly id: number }) => chatbot;
  const moved = JSON.parse((await here(["chatbot", "list", "--json"], newSettings)).stdout);
  expect(moved.map(withoutId)).toEqual(chatbots.map(withoutId));
}, 120_000);
