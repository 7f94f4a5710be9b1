/**
 * Checks the size, the imports and the Node compatibility of the bundled client.
 */
import { execFile } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { rolldown } from "rolldown";
import { afterAll, expect, it } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "parley-client-"));
afterAll(() => rmSync(folder, { recursive: true }));

const bundle = async (name: string) => {
  const input = join(import.meta.dirname, "../src", name);
  const build = await rolldown({ input, platform: "browser", treeshake: false });
  const file = join(folder, name.replace(".ts", ".mjs"));
  const { output } = await build.write({ file, format: "es", minify: true });
  return { file, chunks: output };
};

it("the client is less than 6 kB compressed, and imports nothing", async () => {
  const { chunks } = await bundle("index.ts");
  expect(chunks.length).toBe(1);
  expect(chunks[0].imports).toEqual([]);
  const size = gzipSync(chunks[0].code).length;
  expect(size).toBeLessThan(6000);
});

it("the transport for the AI SDK imports nothing", async () => {
  const { chunks } = await bundle("AiSdk.ts");
  expect(chunks[0].imports).toEqual([]);
});

it("the client runs with the Node on the PATH, which may be older than the server's", async () => {
  const server = createServer((_, response) => {
    response.setHeader("content-type", "text/event-stream");
    response.end('event: entry\nid: a.2\ndata: {"status":201,"data":{"answer":"Hi"}}\n\n');
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { file } = await bundle("index.ts");
  const program = `
    import { makeClient } from ${JSON.stringify(file)};
    const origin = "http://127.0.0.1:${(server.address() as AddressInfo).port}";
    for await (const event of makeClient({ origin, apiKey: "key" }).stream({ query: "q" })) {
      console.log(event.type, event.entry.answer);
    }`;
  const path = process.env["PATH"]!.split(":").filter((entry) => !entry.includes("node_modules"));
  const { stdout } = await promisify(execFile)("node", ["--input-type=module", "-e", program], {
    env: { PATH: path.join(":") },
    timeout: 20_000,
  });
  server.close();
  expect(stdout).toBe("entry Hi\n");
});
