/**
 * Debian's nginx and Caddy with the sample configurations, in which only ports and names are changed, and the systemd
 * unit.
 */
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freePort } from "../apps/server/test/FreePort.ts";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";
import { read } from "../test/docs/Fences.ts";

const run = promisify(execFile);

interface Sample {
  readonly file: string;
  readonly configure: (sample: string, port: number) => string;
  readonly command: (file: string) => readonly [string, ...Array<string>];
}

const samples: ReadonlyArray<Sample> = [
  {
    file: "deploy/nginx.conf",
    configure: (sample, port) =>
      `daemon off; pid nginx.pid; error_log stderr; events {}
       http { access_log off; ${sample.replace("listen 80", `listen 127.0.0.1:${port}`)} }`,
    command: (file) => ["/usr/sbin/nginx", "-p", join(file, ".."), "-e", "stderr", "-c", file],
  },
  {
    file: "deploy/Caddyfile",
    configure: (sample, port) =>
      `{\n\tadmin off\n}\n${sample.replace("parley.example", `http://127.0.0.1:${port}`)}`,
    command: (file) => ["/usr/bin/caddy", "run", "--adapter", "caddyfile", "--config", file],
  },
];

/** The calls to the language model, which the test itself answers. */
const calls: Array<ServerResponse> = [];
const say = (call: ServerResponse, choice: object) =>
  call.write(
    `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta: {}, finish_reason: null, ...choice }] })}\n\n`,
  );
const model = createServer((request, response) => {
  request.resume();
  calls.push(response.writeHead(200, { "content-type": "text/event-stream" }));
});

let directory: string;
let server: TestServer;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-proxies-"));
  // nginx's workers do not run as root.
  await chmod(directory, 0o755);
  await once(model.listen(0, "127.0.0.1"), "listening");
  const { port } = model.address() as AddressInfo;
  server = await launch("memory", {
    PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
    PARLEY_LLM_MODEL: "m",
  });
});
afterAll(async () => {
  await server?.stop();
  model.close();
  await rm(directory, { recursive: true, force: true });
});

it.each(samples)("$file passes on each part of a streamed answer as it arrives", async (sample) => {
  const port = await freePort();
  const home = join(directory, sample.file);
  await mkdir(home, { recursive: true });
  const text = read(sample.file).replace("127.0.0.1:3000", new URL(server.target.origin).host);
  await writeFile(join(home, "configuration"), sample.configure(text, port));
  const [file, ...args] = sample.command(join(home, "configuration"));
  const proxy = spawn(file, args, { env: { HOME: home }, stdio: ["ignore", "pipe", "pipe"] });
  const exit = once(proxy, "close");
  let log = "";
  for (const stream of [proxy.stdout, proxy.stderr]) stream.on("data", (text) => (log += text));
  try {
    const address = `http://127.0.0.1:${port}`;
    const status = () =>
      fetch(`${address}/openapi.json`).then(
        ({ status }) => status,
        () => log,
      );
    await expect.poll(status, { timeout: 10_000 }).toBe(200);
    const before = calls.length;
    const asking = fetch(`${address}/ask/`, {
      method: "POST",
      headers: {
        "x-api-key": server.target.key,
        "x-request-id": "mine",
        "content-type": "application/json",
        accept: "text/event-stream",
      },
      body: '{"query":"Are you there?"}',
    });
    await expect.poll(() => calls.length, { timeout: 10_000 }).toBe(before + 1);
    const call = calls.at(-1)!;
    say(call, { delta: { role: "assistant", content: "one" } });
    const answer = await asking;
    expect(answer.headers.get("x-request-id")).toBe("mine");
    const pieces = answer.body!.pipeThrough(new TextDecoderStream()).getReader();
    let received = "";
    const until = async (part: string) => {
      while (!received.includes(part)) {
        const { done, value } = await pieces.read();
        expect(done, received).toBe(false);
        received += value;
      }
    };
    // The model sends a word only once the previous one has arrived.
    await until('"one"');
    say(call, { delta: { content: " two" } });
    await until('" two"');
    say(call, { finish_reason: "stop" });
    call.end("data: [DONE]\n\n");
    await until("event: entry");
  } finally {
    proxy.kill();
    await exit;
  }
});

it("systemd accepts deploy/parley.service, and rates its exposure below 2 of 10", async () => {
  const unit = join(directory, "parley.service");
  // systemd checks that the program exists.
  await writeFile(
    unit,
    read("deploy/parley.service").replace(/^ExecStart=\S+/m, "ExecStart=/bin/true"),
  );
  expect((await run("systemd-analyze", ["verify", unit])).stderr).toBe("");
  const { stdout } = await run("systemd-analyze", [
    "security",
    "--offline=yes",
    "--no-pager",
    unit,
  ]);
  expect(Number(/exposure level .*: ([\d.]+)/.exec(stdout)![1])).toBeLessThan(2);
});
