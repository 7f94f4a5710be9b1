/**
 * Starts the server with good and bad settings and provisioning files.
 */
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer, type AddressInfo, type Socket } from "node:net";
import { join } from "node:path";
import { Duration, Effect } from "effect";
import { expect, inject, it } from "vitest";
import { temporaryFolder } from "./TemporaryFolder.ts";
import { here, oneLineAndHint } from "./cli/here.ts";
import { main, start } from "./cli/run.ts";
import { freePort } from "./FreePort.ts";
import { readSettings } from "../src/Settings.ts";

const directory = temporaryFolder();

const quiet = { PARLEY_STORE: "memory", PARLEY_PORT: "0", PARLEY_MANAGEMENT_PORT: "0" };
/** The file to which a first start without a terminal writes the key. */
const keyFile = () => join(directory, "data", "first-key");

const refusal = async (settings: Readonly<Record<string, string>>): Promise<string> => {
  const { code, stderr, stdout } = await here(["serve"], { ...quiet, ...settings });
  expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
  expect(stderr).toMatch(oneLineAndHint);
  return stderr;
};

const serve = (settings: Readonly<Record<string, string>>, command = ["serve"]) =>
  start(command, { ...quiet, PARLEY_DATA_DIR: join(directory, "data"), ...settings });

/** Returns the output of a server that is stopped once it is listening. */
const startAndStop = async (settings: Readonly<Record<string, string>>): Promise<string> => {
  const { child, exit, output, untilPrinted } = serve(settings);
  await untilPrinted(/ has started/);
  child.kill("SIGINT");
  expect(await exit).toBe(0);
  return output.stdout;
};

/** Returns what a server prints on a terminal, where Ctrl-C stops it once it has started. */
const onTerminal = async (settings: Readonly<Record<string, string>>): Promise<string> => {
  const script = ["script", "-qec", `${process.execPath} ${main} serve`, "/dev/null"] as const;
  const { child, exit, output, untilPrinted } = start([], { ...quiet, ...settings }, [...script]);
  await untilPrinted(/ has started .*\r/);
  child.stdin!.end("\x03");
  await exit;
  return output.stdout.replaceAll("\r", "");
};

it("the first start without a terminal writes the key to a file, even if an earlier attempt could not listen", async () => {
  const portHolder = createServer().listen(0, "127.0.0.1");
  await once(portHolder, "listening");
  const { port } = portHolder.address() as AddressInfo;
  const settings = {
    PARLEY_STORE: "postgres",
    DATABASE_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: `start_${process.pid}`,
    PARLEY_PORT: String(port),
  };
  expect(await refusal(settings)).toContain(
    `the port is in use; set PARLEY_PORT to another, such as ${port < 65_000 ? port + 100 : port - 100}.`,
  );
  portHolder.close();
  await once(portHolder, "close");
  const printed = await startAndStop(settings);
  expect(printed).toContain(`The first API key is in ${keyFile()}, `);
  expect(printed).not.toContain("prl_");
  expect(await readFile(keyFile(), "utf8")).toMatch(/^prl_\w{52}\n$/);
  expect((await stat(keyFile())).mode & 0o777).toBe(0o600);
  const terminalOutput = await onTerminal(settings);
  expect(terminalOutput).toMatch(/^Store +PostgreSQL at DATABASE_URL \(plain text\)$/m);
  expect(terminalOutput).toMatch(/^Playground +http:\/\/127\.0\.0\.1:\d+\/$/m);
  expect(terminalOutput).toMatch(/^Guide +http:\/\/127\.0\.0\.1:\d+\/docs\/guide$/m);
  expect(terminalOutput).toMatch(
    /^API key +shown when the server first started; create another: npx --yes pnpm@12 --silent parley key create /m,
  );
}, 60_000);

it("at its first start, a server is ready only once its key is in a file; the memory store has its own file", async () => {
  const data = join(directory, "ready");
  const port = String(await freePort());
  const { child, exit } = serve({ PARLEY_DATA_DIR: data, PARLEY_MANAGEMENT_PORT: port });
  const isReady = () =>
    fetch(`http://127.0.0.1:${port}/health/ready`).then(
      ({ ok }) => ok,
      () => false,
    );
  while (!(await isReady())) expect(child.exitCode).toBeNull();
  expect(await readFile(join(data, "memory-key"), "utf8")).toMatch(/^prl_/);
  // The file for the key of a SQLite file is left alone.
  expect(existsSync(join(data, "first-key"))).toBe(false);
  child.kill("SIGINT");
  await exit;
});

/** A provisioning file with a key that lets anyone use a widget. */
const anonymousKey = async () => {
  const file = join(directory, "anonymous.json");
  const key = (await here(["key", "generate"], {})).stdout.trim();
  const bounds = { visitorRatePerMinute: 10, tokensPerDay: 1000 };
  const declared = { key, scopes: ["ask"], visitors: true, anonymous: true, ...bounds };
  const chatbot = { workspace: "W", name: "B", keys: [declared] };
  await writeFile(file, JSON.stringify({ chatbots: [chatbot] }));
  return { PARLEY_PROVISION: file };
};
const sharedLimit = "set PARLEY_TRUSTED_PROXIES: otherwise all clients share one limit";

it("a server warns at startup of the PostgreSQL of an earlier version, unknown settings and a limit that visitors share", async () => {
  const data = join(directory, "earlier");
  await mkdir(join(data, "postgres"), { recursive: true });
  const printed = await startAndStop({
    ...(await anonymousKey()),
    PARLEY_STORE: "sqlite",
    PARLEY_DATA_DIR: data,
    PARLEY_PROT: "80",
    // Only white space, which counts as not set.
    PARLEY_ASK_PORT: " ",
    PARLEY_KNOWLEDGE_DIR: " ",
    DATABASE_URL: " ",
  });
  expect(printed).not.toMatch(/Experimental/i);
  for (const warning of [/earlier version.*chats export/, /PARLEY_PROT is not a setting/])
    expect(printed.split("\n").filter((line) => warning.test(line))).toHaveLength(1);
  expect(printed).toContain(sharedLimit);
  const behindProxies = { ...(await anonymousKey()), PARLEY_TRUSTED_PROXIES: "10.0.0.0/8" };
  expect(await startAndStop(behindProxies)).not.toContain(sharedLimit);
  expect(existsSync(join(data, "postgres"))).toBe(true);
  expect(existsSync(join(data, "parley.db"))).toBe(true);
  const [, general, answers] = /"general":"(.*)\/api","answers":"(.*?)\/ask\/"/.exec(printed)!;
  expect(answers).toBe(general);
});

it("while it connects to its database, a server survives a SIGHUP, which other commands and SIGINT do not", async () => {
  for (const [command, signal, code] of [
    [["serve"], "SIGHUP", 1],
    [["chat", "--chatbot", "serve"], "SIGHUP", 130],
    [["chat", "--chatbot", "serve"], "SIGINT", 130],
  ] as const) {
    const database = createServer().listen(0, "127.0.0.1");
    await once(database, "listening");
    const { port } = database.address() as AddressInfo;
    const connected = once(database, "connection");
    const DATABASE_URL = `postgres://nobody@127.0.0.1:${port}/none`;
    const { child } = serve({ PARLEY_STORE: "postgres", DATABASE_URL }, [...command]);
    const exit = once(child, "exit");
    const [socket] = (await connected) as [Socket];
    child.kill(signal);
    // The server exits because of the database, not the signal.
    if (code === 1) socket.destroy();
    database.close();
    expect(await exit).toEqual([code, null]);
    socket.destroy();
  }
});

it("a provisioning file is not applied if a setting is wrong", async () => {
  const file = join(directory, "wrong.json");
  await writeFile(file, JSON.stringify({ chatbots: [{ workspace: "W", name: "B" }] }));
  const settings = {
    PARLEY_STORE: "postgres",
    DATABASE_URL: inject("postgresUrl"),
    PARLEY_SCHEMA: `wrong_${process.pid}`,
  };
  expect((await here(["migrate"], settings)).code).toBe(0);
  const wrong = { PARLEY_PROVISION: file, PARLEY_KNOWLEDGE_DIR: join(directory, "nowhere") };
  expect(await refusal({ ...settings, ...wrong })).toContain("cannot read the documents");
  expect((await here(["chatbot", "list", "--json"], settings)).stdout.trim()).toBe("[]");
}, 60_000);

it("a duration setting accepts words and short units, but no bare number except 0", async () => {
  for (const [value, millis] of [
    ["0", 0],
    ["5s", 5000],
    ["500ms", 500],
    ["2 minutes", 120_000],
  ] as const) {
    const settings = await Effect.runPromise(readSettings({ PARLEY_DRAIN_DELAY: value }));
    expect(Duration.toMillis(settings.drainDelay)).toBe(millis);
  }
  for (const value of ["30", "5 sec", "2 hours"]) {
    expect(await refusal({ PARLEY_DRAIN_DELAY: value })).toContain(
      "such as 5 seconds or 2 minutes",
    );
  }
});
