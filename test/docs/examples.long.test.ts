/**
 * The examples that the documentation quotes do what it says. `pnpm run check` compiles them.
 */
import { generateKey } from "@parley/core";
import { Effect, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { join } from "node:path";
import { promisify } from "node:util";
import { expect, it } from "vitest";
import "../../examples/memory-store.test.ts";
import { fencesOf, read, root, sectionOf } from "./Fences.ts";
import { withoutSettings } from "../../apps/server/test/withoutSettings.ts";

const run = promisify(execFile);
const example = (name: string) => join(root, "examples", name);

const key = await generateKey.pipe(
  Effect.map(Redacted.value),
  Effect.provide(SecureRandom.layerWebCrypto),
  Effect.runPromise,
);
const environment = { ...withoutSettings(), API_KEY: key, PORT: "0" };

it("promise.ts prints what docs/library/embedding.md shows", async () => {
  const section = fencesOf(sectionOf(read("docs/library/embedding.md"), "## Without Effect"));
  const { stdout } = await run(process.execPath, [example("promise.ts")], { env: environment });
  expect(stdout.trim()).toBe(section.find(({ info }) => info === "text")!.text);
});

it("product.ts and who-asks.ts print what docs/library/embedding.md shows", async () => {
  for (const [file, heading] of [
    ["product.ts", "## What a product adds"],
    ["who-asks.ts", "## With Effect"],
  ] as const) {
    const section = fencesOf(sectionOf(read("docs/library/embedding.md"), heading));
    const { stdout } = await run(process.execPath, [example(file)], { env: environment });
    expect(stdout.trim()).toBe(section.find(({ info }) => info === "text")!.text);
  }
});

it("own-rows.ts prints what docs/library/embedding.md shows", async () => {
  const section = fencesOf(
    sectionOf(read("docs/library/embedding.md"), "## Beside your own tables"),
  );
  const { stdout } = await run(process.execPath, [example("own-rows.ts")], { env: environment });
  expect(stdout.trim()).toBe(section.find(({ info }) => info === "text")!.text);
});

it("archive.ts prints what docs/library/embedding.md shows", async () => {
  const section = fencesOf(sectionOf(read("docs/library/embedding.md"), "## Erasing and moving"));
  const { stdout } = await run(process.execPath, [example("archive.ts")], { env: environment });
  expect(stdout.trim()).toBe(section.find(({ info }) => info === "text")!.text);
});

it("own-answerer.ts prints what docs/library/write-an-answerer.md shows", async () => {
  const shown = fencesOf(read("docs/library/write-an-answerer.md")).find(
    ({ info }) => info === "text",
  )!;
  const { stdout } = await run(process.execPath, [example("own-answerer.ts")], {
    env: environment,
  });
  expect(stdout.trim()).toBe(shown.text);
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
