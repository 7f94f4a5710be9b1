/**
 * How a server stops: after a delay on SIGTERM, without one on Ctrl-C, and without completing its answers on a second
 * signal.
 */
import { once } from "node:events";
import { setTimeout } from "node:timers/promises";
import { afterEach, expect, it, vi } from "vitest";
import {
  api,
  askApi,
  askStream,
  createChat,
  expectGeneral,
  parseEvents,
} from "./contract/client.ts";
import { launch, type TestServer } from "./contract/launch.ts";
import { freePort } from "./FreePort.ts";
import { startSlowModel, type SlowModel } from "./TestModel.ts";

const polling = { timeout: 10_000, interval: 10 };

let model: SlowModel;
let testServer: TestServer;
afterEach(async () => {
  model?.close();
  await testServer?.stop();
});

/**
 * Starts a server with an ask in progress, a second ask waiting behind it in the same chat, and a stream. The model
 * completes its answers once `release` is called.
 */
const start = async (
  store: "memory" | "sqlite",
  settings: Readonly<Record<string, string>> = {},
) => {
  let release = () => {};
  const released = new Promise<void>((resolve) => (release = resolve));
  model = await startSlowModel(() => released);
  const port = await freePort();
  const more = { ...model.settings, ...settings, PARLEY_MANAGEMENT_PORT: String(port) };
  testServer = await launch(store, more);
  const { child, target } = testServer;
  const exit = once(child, "exit");
  const ready = () => fetch(`http://127.0.0.1:${port}/health/ready`).then(({ status }) => status);
  expect(await ready()).toBe(200);
  const chat = await createChat(target);
  const ask = () => askApi(target, { json: { chat_id: chat.id, query: "q" } });
  const firstAsk = ask();
  const stream = askStream(target, { json: { query: "q" } });
  await vi.waitFor(() => expect(model.calls()).toBe(2), polling);
  const secondAsk = ask();
  // By the time the server responds to this request, it has read the second ask.
  await details(target);
  return { firstAsk, child, exit, ready, release, stream, target, secondAsk };
};

const details = (target: TestServer["target"]) => api(target, "/details");

it("after a SIGTERM, a server is not ready, keeps serving for the delay, and then completes its answers", async () => {
  const { firstAsk, child, exit, ready, release, stream, target, secondAsk } = await start(
    "memory",
    { PARLEY_DRAIN_DELAY: "3 seconds" },
  );
  child.kill("SIGTERM");
  // pnpm forwards the signal, so a server can receive it twice.
  child.kill("SIGTERM");
  await vi.waitFor(async () => expect(await ready()).toBe(503), polling);
  const served = await details(target);
  expect(served.status).toBe(200);
  expect(served.headers["connection"]).toBe("close");

  const refused = await secondAsk;
  expectGeneral(refused, 500);
  expect(refused.body.message).toBe("SERVICE_OVERLOADED");
  expect(refused.headers["retry-after"]).toBe("1");
  await expect(details(target)).rejects.toThrow("ECONNREFUSED");
  await vi.waitFor(() => expect(testServer.log()).toContain("Waiting for 2 answers"), polling);
  expect(await ready()).toBe(503);
  expect(child.exitCode).toBeNull();

  release();
  const answered = await firstAsk;
  expect(answered.status).toBe(201);
  expect(answered.headers["connection"]).toBe("close");
  expect(parseEvents((await stream).text).at(-1)).toMatchObject({ event: "entry" });
  expect(await exit).toEqual([0, null]);
});

const ending = "after Ctrl-C, a server accepts no connections; a second signal ends it at once";
it(ending, { timeout: 90_000 }, async () => {
  const { firstAsk, child, exit, ready, stream, target, secondAsk } = await start("sqlite");
  const lost = Promise.allSettled([firstAsk, stream]);
  child.kill("SIGINT");
  expectGeneral(await secondAsk, 500);
  expect(await ready()).toBe(503);
  await expect(details(target)).rejects.toThrow("ECONNREFUSED");

  await setTimeout(400);
  child.kill("SIGTERM");
  expect(await exit).toEqual([130, null]);
  expect((await lost).map(({ status }) => status)).toEqual(["rejected", "rejected"]);
});
