/**
 * The examples that the documentation quotes do what it says. `pnpm run check` compiles them.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import "../../examples/memory-store.test.ts";
import { fencesOf, read, root, sectionOf } from "./Fences.ts";
import { makeKeys } from "../keys.ts";
import { withoutSettings } from "../../apps/server/test/withoutSettings.ts";

const run = promisify(execFile);
const example = (name: string) => join(root, "examples", name);

const [key] = (await makeKeys(1)) as [string];
const environment = { ...withoutSettings(), API_KEY: key, PORT: "0" };

it.each([
  ["promise.ts", "embedding", "## Without Effect"],
  ["product.ts", "embedding", "## What a product adds"],
  ["who-asks.ts", "embedding", "## With Effect"],
  ["own-rows.ts", "embedding", "## Beside your own tables"],
  ["archive.ts", "embedding", "## Erasing and moving"],
  ["own-answerer.ts", "write-an-answerer", null],
])("%s prints what docs/library/%s.md shows", async (file, page, heading) => {
  const text = read(`docs/library/${page}.md`);
  const fences = fencesOf(heading === null ? text : sectionOf(text, heading));
  const { stdout } = await run(process.execPath, [example(file)], { env: environment });
  expect(stdout.trim()).toBe(fences.find(({ info }) => info === "text")!.text);
});

it("testing/service.node.ts passes with node --test", async () => {
  await run(process.execPath, ["--test", example("testing/service.node.ts")], { env: environment });
});

it("own-keys.ts accepts its key", async () => {
  const { stdout } = await run(process.execPath, [example("own-keys.ts")], { env: environment });
  expect(stdout).toBe("[ 'read', 'ask' ] user-7\n");
});

it("mount.ts serves both interfaces", async () => {
  const child = spawn(process.execPath, [example("mount.ts")], { env: environment });
  const exit = once(child, "exit");
  try {
    const [line] = await once(child.stdout, "data");
    const [, address, key] = /^(\S+) with the key (\S+)/.exec(String(line))!;
    const send = (path: string, init: RequestInit) =>
      fetch(new URL(path, address), {
        ...init,
        headers: { "x-api-key": key!, "content-type": "application/json", ...init.headers },
      });
    const details = await send("/support/chatbot/details", {});
    expect(details.status).toBe(200);
    const answer = await send("/support/ask", { method: "POST", body: '{"query":"Hello?"}' });
    expect(answer.status).toBe(201);
    const streamed = await send("/support/ask", {
      method: "POST",
      body: '{"query":"Hello?"}',
      headers: { accept: "text/event-stream" },
    });
    expect(await streamed.text()).toMatch(/^event: delta\n.*\ndata: {"text":"You asked: Hello\?"}/);
    const big = await send("/support/ask", { method: "POST", body: `"${"x".repeat(70_000)}"` });
    expect(big.status).toBe(400);
  } finally {
    child.kill();
    await exit;
  }
});

it("in-process.ts calls the handler without a port", async () => {
  const { stdout } = await run(process.execPath, [example("in-process.ts")], { env: environment });
  expect(stdout).toBe("You asked: Are you open?\n1 1\n404 CHAT_DOES_NOT_EXISTS\n");
});
