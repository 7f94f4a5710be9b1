import axe from "axe-core";
import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";
import { startChromium, type Chromium } from "./programs/Chromium.ts";

let server: TestServer;
let port: string;
beforeAll(async () => {
  server = await launch("memory");
  port = new URL(server.target.baseUrl).port;
});
afterAll(() => server?.stop());

/** Opens the path at the host name, runs `use` on the page, and returns the page's network requests. */
const visit = async (name: string, use: (chromium: Chromium) => Promise<void>, path = "/docs") => {
  const chromium = await startChromium(name);
  const failure = await (async () => {
    await chromium.send("Page.navigate", { url: `http://${name}:${port}${path}` });
    await chromium.until(`document.body?.innerText.includes("Get chatbot details")`);
    await use(chromium);
  })().then(
    () => undefined,
    (reason: unknown) => ({ reason }),
  );
  const requests = await chromium.close();
  if (failure !== undefined) {
    throw new Error(`failed after requests for ${requests.urls.join(" ")}`, {
      cause: failure.reason,
    });
  }
  return requests;
};

/** Part of the response to the samples of operations, in an order in which each sample finds what it refers to. */
const samples = [
  ["general.details", "chatBotName"],
  ["general.createChat", '"First chat"'],
  ["general.listChats", '"total"'],
  ["general.history", "Hello!"],
  ["general.changeChat", '"Another name"'],
  ["answers.ask", '"answer"'],
] as const;

const isElsewhere = (name: string) => (url: string) =>
  !/^(data|blob):/.test(url) && new URL(url).origin !== `http://${name}:${port}`;

// The page treats a server with a public name differently from one on this machine.
describe.each(["example.com", "localhost"])("the documentation page at %s", (name) => {
  it("the API reference shows the operations, sends their samples unchanged, and loads nothing from other hosts", async () => {
    const { key } = server.target;
    const requests = await visit(name, async ({ evaluate, send, until }) => {
      expect(await evaluate("document.title")).toBe("API · Parley");
      await evaluate(
        `sessionStorage.setItem("parley-key", ${JSON.stringify(key)}); window.isFormer = true; setTimeout(() => location.reload())`,
      );
      await until(`!window.isFormer && document.querySelector(".trial") !== null`);
      const formOf = (operationId: string) =>
        `document.getElementById("${operationId}").parentElement.querySelector(".trial")`;
      const sent = async (operationId: string, status: string) => {
        const form = formOf(operationId);
        await evaluate(`${form}.querySelector("button").click()`);
        await until(`/Status ${status}/.test(${form}.innerText)`);
        return evaluate(`${form}.querySelector("code").innerText`);
      };
      for (const [operationId, part] of samples)
        expect(await sent(operationId, "20[01]")).toContain(part);
      // The form sends the header that this operation requires.
      const stop = "answers.stopAsk";
      await evaluate(`${formOf(stop)}.elements["Idempotency-Key"].value = "key-1"`);
      expect(await sent(stop, "404")).toContain("ASK_DOES_NOT_EXIST");
      await send("Emulation.setDeviceMetricsOverride", {
        width: 390,
        height: 800,
        deviceScaleFactor: 1,
        mobile: true,
      });
      await evaluate(axe.source);
      const { violations } = await evaluate("axe.run()");
      expect(violations.map(({ id }: { id: string }) => id)).toEqual([]);
      expect(await evaluate("document.documentElement.scrollWidth <= innerWidth")).toBe(true);
    });
    expect(requests.urls).toContain(`http://${name}:${port}/docs`);
    expect(requests.urls).toContain(`http://${name}:${port}/api/details`);
    expect(requests.urls.filter(isElsewhere(name))).toEqual([]);
    expect(requests.hosts).toEqual([`http://127.0.0.1:${port}`]);
  });
});

it.each(["curl", "JavaScript"])(
  "the reference's samples in %s run as printed",
  async (language) => {
    let samples: Record<string, string> = {};
    await visit("localhost", async ({ evaluate }) => {
      samples = await evaluate(`Object.fromEntries(
      [...document.querySelectorAll(".operation")].map((operation) => [
        operation.querySelector("h2").id,
        [...operation.querySelectorAll(".code")]
          .find(({ innerText }) => innerText.startsWith("${language}"))
          .querySelector("code").textContent,
      ]))`);
    });
    // The samples refer to the first chat, and to its first entry.
    const fresh = await launch("memory");
    try {
      const statuses: Record<string, number> = {};
      const [first, last] = ["general.createChat", "general.deleteChat"];
      const others = Object.keys(samples).filter((name) => name !== first && name !== last);
      for (const name of [first!, ...others, last!]) {
        const code = samples[name]!.replace(`http://localhost:${port}`, fresh.target.origin);
        const [command, ...values] =
          language === "curl"
            ? ["sh", "-c", `${code} -w ' %{http_code}'`]
            : [
                process.execPath,
                "--input-type=module",
                "-e",
                `${code} console.log(response.status)`,
              ];
        const env = { ...process.env, KEY: fresh.target.fullKey };
        const { stdout } = await promisify(execFile)(command!, values, { env });
        statuses[name] = Number(/\d+$/.exec(stdout.trim())?.[0]);
      }
      expect(statuses).toEqual({
        "general.details": 200,
        "general.createChat": 201,
        "general.listChats": 200,
        "general.changeChat": 200,
        "general.deleteChat": 200,
        "general.history": 200,
        "general.changeEntry": 200,
        "general.postEntry": 201,
        "answers.ask": 201,
        // Nothing has been asked with the key of the sample.
        "answers.stopAsk": 404,
      });
    } finally {
      await fresh.stop();
    }
  },
);

describe("the browser's network log", () => {
  it("the browser reports a page's requests to other hosts", async () => {
    const requests = await visit(
      "example.com",
      async ({ evaluate }) => {
        await evaluate(`
        document.head.insertAdjacentHTML("beforeend", \`
          <link rel="preconnect" href="http://preconnect.example.net">
          <link rel="stylesheet" href="http://style.example.net/">
          <style>
            @font-face { font-family: elsewhere; src: url(http://font.example.net/) }
            body { font-family: elsewhere !important }
          </style>\`);
        document.body.insertAdjacentHTML("beforeend", \`
          <img src="http://image.example.net/"><iframe src="http://frame.example.net/"></iframe>\`);
        new WebSocket("ws://socket.example.net");
        new Worker(URL.createObjectURL(new Blob(["fetch('http://worker.example.net')"])));
        fetch("http://fetch.example.net").catch(() => new Promise((end) => setTimeout(end, 1000)));
      `);
        // On an HTML page, the content security policy would block these requests.
      },
      "/openapi.json",
    );
    expect(requests.urls.filter(isElsewhere("example.com")).toSorted()).toEqual([
      "http://fetch.example.net/",
      "http://font.example.net/",
      "http://frame.example.net/",
      "http://image.example.net/",
      "http://style.example.net/",
      "http://worker.example.net/",
      "ws://socket.example.net/",
    ]);
    expect(requests.hosts).toContain("http://~notfound");
  });
});
