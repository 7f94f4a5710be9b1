/**
 * Firefox over WebDriver BiDi, as it comes from Debian: Playwright drives only its own build.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { setTimeout as sleep } from "node:timers/promises";

const binary = "/usr/bin/firefox-esr";

export const hasFirefox = existsSync(binary);

type Json = Record<string, any>;

export type Firefox = Awaited<ReturnType<typeof startFirefox>>;

/** Starts Firefox with a new profile and one page. */
export const startFirefox = async () => {
  const profile = await mkdtemp(join(tmpdir(), "parley-firefox-"));
  const args = ["--headless", "--remote-debugging-port=0", "--profile", profile];
  const child = spawn(binary, args, { stdio: ["ignore", "ignore", "pipe"] });
  let address = "";
  for await (const line of createInterface(child.stderr)) {
    address = /WebDriver BiDi listening on (\S+)/.exec(line)?.[1] ?? "";
    if (address !== "") break;
  }
  child.stderr.resume();
  const socket = new WebSocket(`${address}/session`);
  await once(socket, "open");
  const waiting = new Map<number, PromiseWithResolvers<Json>>();
  /** The errors in the pages since the start. */
  const errors: Array<string> = [];
  socket.onmessage = ({ data }) => {
    const { id, method, params, result, type, ...error } = JSON.parse(data);
    if (type === "success") waiting.get(id)?.resolve(result);
    else if (type === "error") waiting.get(id)?.reject(new Error(JSON.stringify(error)));
    else if (method === "log.entryAdded" && params.level === "error") errors.push(params.text);
  };
  let count = 0;
  const send = (method: string, params: Json = {}): Promise<Json> => {
    const answer = Promise.withResolvers<Json>();
    waiting.set(++count, answer);
    socket.send(JSON.stringify({ id: count, method, params }));
    return answer.promise;
  };
  await send("session.new", { capabilities: {} });
  await send("session.subscribe", { events: ["log.entryAdded"] });
  const contextsOf = async () => (await send("browsingContext.getTree"))["contexts"];
  const top: string = (await contextsOf())[0].context;
  await send("browsingContext.setViewport", {
    context: top,
    viewport: { width: 1280, height: 800 },
  });

  const contextOf = async (inFrame: boolean): Promise<string> =>
    inFrame ? (await contextsOf())[0].children[0].context : top;
  /** Evaluates an expression in the page, or in its first frame, and returns its value by way of JSON. */
  const evaluate = async (expression: string, inFrame = false): Promise<any> => {
    const { exceptionDetails, result } = await send("script.evaluate", {
      expression: `Promise.resolve(${expression}).then(JSON.stringify)`,
      target: { context: await contextOf(inFrame) },
      awaitPromise: true,
    });
    if (exceptionDetails) throw new Error(exceptionDetails.text);
    return result.value && JSON.parse(result.value);
  };
  const act = async (source: Json, inFrame: boolean) =>
    send("input.performActions", { context: await contextOf(inFrame), actions: [source] });
  return {
    errors,
    evaluate,
    goto: (url: string) =>
      send("browsingContext.navigate", { context: top, url, wait: "complete" }),
    /** Waits until the expression is true. */
    waitFor: async (expression: string, inFrame = false) => {
      for (let attempt = 0; ; attempt++) {
        const isThere = await evaluate(`Boolean(${expression})`, inFrame).catch(() => false);
        if (isThere) return;
        if (attempt === 200) throw new Error(`not true in 20 s: ${expression}`);
        await sleep(100);
      }
    },
    /** Clicks with the mouse in the middle of an element. */
    click: async (element: string, inFrame = false) => {
      const box = await evaluate(`${element}.getBoundingClientRect().toJSON()`, inFrame);
      const middle = {
        x: Math.round(box.x + box.width / 2),
        y: Math.round(box.y + box.height / 2),
      };
      const buttons = ["pointerDown", "pointerUp"].map((type) => ({ type, button: 0 }));
      const actions = [{ type: "pointerMove", ...middle }, ...buttons];
      await act({ type: "pointer", id: "mouse", actions }, inFrame);
    },
    /** Types where the focus is. `\uE007` is the Enter key. */
    type: async (text: string, inFrame = false) => {
      const actions = [...text].flatMap((value) =>
        ["keyDown", "keyUp"].map((type) => ({ type, value })),
      );
      await act({ type: "key", id: "keys", actions }, inFrame);
    },
    stop: async () => {
      const end = once(child, "exit");
      child.kill();
      await end;
      await rm(profile, { recursive: true, force: true });
    },
  };
};
