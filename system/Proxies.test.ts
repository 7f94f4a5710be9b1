/**
 * Debian's nginx and Caddy with the sample configurations, in which only ports and names are changed, and the systemd
 * unit.
 */
import { execFile } from "node:child_process";
import { chmod, mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, it } from "vitest";
import { freePort } from "../apps/server/test/FreePort.ts";
import { start } from "../apps/server/test/cli/run.ts";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";
import {
  startTestModel,
  type ModelRequest,
  type TestModel,
} from "../apps/server/test/TestModel.ts";
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
const calls: Array<ModelRequest> = [];
let model: TestModel;
let directory: string;
let server: TestServer;
beforeAll(async () => {
  directory = await mkdtemp(join(tmpdir(), "parley-proxies-"));
  // nginx's workers do not run as root.
  await chmod(directory, 0o755);
  model = await startTestModel((call) => calls.push(call));
  server = await launch("memory", model.settings);
});
afterAll(async () => {
  await server?.stop();
  model?.close();
  await rm(directory, { recursive: true, force: true });
});

it.each(samples)("$file passes on each part of a streamed answer as it arrives", async (sample) => {
  const port = await freePort();
  const home = join(directory, sample.file);
  await mkdir(home, { recursive: true });
  const text = read(sample.file).replace("127.0.0.1:3000", new URL(server.target.origin).host);
  await writeFile(join(home, "configuration"), sample.configure(text, port));
  const [file, ...args] = sample.command(join(home, "configuration"));
  const proxy = start(args, { HOME: home }, [file]);
  try {
    const address = `http://127.0.0.1:${port}`;
    const status = () =>
      fetch(`${address}/openapi.json`).then(
        ({ status }) => status,
        () => proxy.output.stderr,
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
    call.say("one");
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
    call.say(" two");
    await until('" two"');
    call.end();
    await until("event: entry");
  } finally {
    proxy.child.kill();
    await proxy.exit;
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
