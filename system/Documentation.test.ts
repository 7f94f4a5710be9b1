import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, type Running } from "../apps/server/test/contract/launch.ts";
import { startChromium, type Chromium } from "./programs/Chromium.ts";

let server: Running;
let port: string;
beforeAll(async () => {
  server = await launch("memory");
  port = new URL(server.target.baseUrl).port;
});
afterAll(() => server?.stop());

/** Opens `/docs` under the name, and answers what the page then asked of the network. */
const visit = async (name: string, use: (chromium: Chromium) => Promise<void>) => {
  const chromium = await startChromium(name);
  const used = await (async () => {
    await chromium.send("Page.navigate", { url: `http://${name}:${port}/docs` });
    await chromium.until(`document.body?.innerText.includes("Get chatbot details")`);
    await use(chromium);
  })().then(
    () => undefined,
    (reason: unknown) => ({ reason }),
  );
  const asked = await chromium.close();
  if (used !== undefined) {
    throw new Error(`failed, having asked for ${asked.urls.join(" ")}`, { cause: used.reason });
  }
  return asked;
};

const button = (words: RegExp) =>
  `[...document.querySelectorAll("button")].find((one) => ${words}.test(one.innerText))`;

/** The page's samples, in an order in which each has what it names, with a part of the response. */
const samples: ReadonlyArray<readonly [RegExp, string | null]> = [
  [/Test Request.*get \/api\/details/s, null],
  [/Test Request.*post \/api\/chats/s, "201 Created"],
  [/Test Request.*get \/api\/chats\)/s, '"total"'],
  [/Test Request.*get \/api\/chats\/.*history/s, "Hello!"],
  [/Test Request.*post \/ask/s, "201 Created"],
];

const isElsewhere = (name: string) => (url: string) =>
  !/^(data|blob):/.test(url) && new URL(url).origin !== `http://${name}:${port}`;

// The page treats a server with a public name otherwise than one of this machine.
describe.each(["example.com", "localhost"])("the documentation page at %s", (name) => {
  it("shows the interface, sends its samples as they are, and loads nothing from elsewhere", async () => {
    const { key, chatBot } = server.target;
    const asked = await visit(name, async ({ evaluate, send, until }) => {
      expect(await evaluate("document.title")).toBe("Parley");
      const answers = button(/^Open Group\s+answers/);
      await until(answers);
      await evaluate(`${answers}.click()`);
      await until(`document.body.innerText.includes("Ask the chatbot a question")`);

      const answered = async (sample: RegExp, expected: string) => {
        const testRequest = button(sample);
        await until(testRequest);
        await evaluate(`${testRequest}.click()`);
        const secret = `document.querySelector("[role=dialog] .scalar-password-input")`;
        await until(secret);
        if (sample === samples[0]![0]) {
          await evaluate(`${secret}.focus()`);
          await send("Input.insertText", { text: key });
        }
        await until(button(/^Send\s/));
        await evaluate(`${button(/^Send\s/)}.click()`);
        await until(
          `document.querySelector("[role=dialog]").innerText.includes(${JSON.stringify(expected)})`,
        );
      };
      for (const [sample, expected] of samples) await answered(sample, expected ?? chatBot.name);
      const text = await evaluate("document.body.innerText");
      expect(text).not.toMatch(/Developer Tools|Open API Client/);
    });
    expect(asked.urls).toContain(`http://${name}:${port}/docs`);
    expect(asked.urls).toContain(`http://${name}:${port}/api/details`);
    expect(asked.urls.filter(isElsewhere(name))).toEqual([]);
    expect(asked.hosts).toEqual([`http://127.0.0.1:${port}`]);
  });
});

describe("the browser's network log", () => {
  it("the browser reports the requests of a page to other hosts", async () => {
    const asked = await visit("example.com", async ({ evaluate }) => {
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
    });
    expect(asked.urls.filter(isElsewhere("example.com")).toSorted()).toEqual([
      "http://fetch.example.net/",
      "http://font.example.net/",
      "http://frame.example.net/",
      "http://image.example.net/",
      "http://style.example.net/",
      "http://worker.example.net/",
      "ws://socket.example.net/",
    ]);
    expect(asked.hosts).toContain("http://~notfound");
  });
});
