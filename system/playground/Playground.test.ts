/**
 * The playground in Chromium, with a SQLite file and a slow model.
 */
import { makeClient, type Client } from "@parley/client";
import { once } from "node:events";
import { readFile } from "node:fs/promises";
import { createServer, request } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import { type Browser, type BrowserContextOptions, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, inject, it } from "vitest";
import { launch, type TestServer } from "../../apps/server/test/contract/launch.ts";
import { startRelay } from "../../apps/server/test/Relay.ts";
import { desktop, expectAccessible, launchBrowser, phone } from "./Browsers.ts";
import { startSlowModel, type SlowModel } from "./SlowModel.ts";

const long = `It begins. ${Array.from({ length: 60 }, (_, at) => `word${at}`).join(" ")} 😀 It ends.`;
const hostile = `<script>window.harmed = 1</script>

<img src="x" onerror="window.harmed = 2"> and ![a picture](https://elsewhere.example/picture.png)

[a link](javascript:window.harmed=3) [another](JaVaScRiPt:window.harmed=4) <a href="javascript:window.harmed=5">raw</a>

[a good link](https://elsewhere.example/) [![a badge](https://elsewhere.example/badge.svg)](https://elsewhere.example/build) <svg onload="window.harmed = 6"></svg>`;
const multilingual = `## Größe und Änderung

مرحبا بالعالم

- مرحبا

> مرحبا

Done 👩‍👩‍👧`;

const rows = (count: number) =>
  Array.from({ length: count }, (_, at) => `| row ${at} | ${"words of a cell ".repeat(8)} |`).join(
    "\n",
  );
const table = `| PARLEY_SETTING | What it does |\n| --- | ---: |\n${rows(2)}\n| A<br>B | C<BR />D |`;
const code = "```sh\necho hello\n```\n\n# One\n\n### Three";
/** 26 kB in 5,000 pieces, in five kinds of block. */
const fast = Array.from(
  { length: 100 },
  (_, at) =>
    ["", "- ", "> ", "## ", "| a | b |\n| - | - |\n| "][at % 5] +
    Array.from({ length: 50 }, (_, word) => `w${at}${word}`).join(" "),
).join("\n\n");
/** Input that a Markdown parser may fail on, or take minutes to parse. */
const tangles: Readonly<Record<string, string>> = {
  quotations: ">".repeat(5000) + "a",
  "quotations and text": ">".repeat(5000) + "a\nb",
  lists: "- ".repeat(3000) + "a",
  "lists and text": "- ".repeat(3000) + "a\nb",
  numbers: "1. ".repeat(3000) + "a",
  steps: Array.from({ length: 300 }, (_, at) => `${" ".repeat(2 * at)}- a`).join("\n"),
  stars: "*".repeat(99_000),
  emphasis: "*a_b".repeat(24_000),
  brackets: "[".repeat(50_000),
  ticks: "` ".repeat(49_000),
  line: "x".repeat(99_000),
  "an address": `${"a.".repeat(49_000)}@b`,
  accents: `a${"\u0301".repeat(99_000)}`,
  definitions: Array.from({ length: 6000 }, (_, at) => `[a${at}]: b`).join("\n"),
  links: "[a](".repeat(24_000),
  paragraphs: "a\n\n".repeat(33_000),
  "code blocks": "```\na\n```\n\n".repeat(6000),
  "items without letters": "- 1\n".repeat(16_000),
  "lines without letters": "1  \n".repeat(16_000),
  "empty items": "+\n".repeat(24_000),
  formulas: "$a$ ".repeat(16_000),
  rows: `| a | b |\n| - | - |\n${Array.from({ length: 2000 }, (_, at) => `| ${at} | b |`).join("\n")}`,
};

const notation = String.raw`&Auml; &#xe4; &ndash; $a_1 * b_2 * c$ \(x_1 * y_1\) &constructor; costs $5 or $6 **bold**

&bdquo;A&rdquo; ${"`&auml;`"} ![&ouml;](https://elsewhere.example/?a=1&amp;b=2)

- [x] done
- [ ] open

A note.[^1]

[^1]: The footnote.`;

const script = (question: string): string | undefined => {
  if (question === "fail") return undefined;
  if (question === "hostile") return hostile;
  if (question === "languages") return multilingual;
  if (question === "table") return table;
  if (question === "notation") return notation;
  if (question === "code") return code;
  if (question === "coloured") return '```js\nconst one = "1" + 1; // one\n```';
  if (question === "fast") return fast;
  if (question in tangles) return tangles[question];
  // Long enough to check its accessibility while it arrives, even on a busy machine.
  if (question === "endless") return long.repeat(20);
  return question === "long" ? long : "A short **answer**.";
};

let browser: Browser;
let model: SlowModel;
let server: TestServer;
let client: Client;
beforeAll(async () => {
  const pause = (question: string) => (question in tangles ? 0 : question === "fast" ? 2 : 60);
  model = await startSlowModel(script, pause);
  server = await launch("sqlite", model.settings, { suggestedQuestions: ["Ports", "Keys"] });
  client = makeClient({ origin: server.target.origin, apiKey: server.target.key });
  await client.createChat();
  browser = await launchBrowser();
});
afterAll(async () => {
  await browser?.close();
  await server?.stop();
  model?.close();
});

/** Opens the page with the key in the address, fails on any error in the page, and closes it afterwards. */
const visit = async (
  use: (page: Page) => Promise<void>,
  { origin = server.target.origin, ...options }: BrowserContextOptions & { origin?: string } = {},
  hash = `#key=${server.target.key}`,
) => {
  const context = await browser.newContext({ ...desktop, ...options });
  const page = await context.newPage();
  const errors: Array<string> = [];
  page.on("pageerror", ({ message }) => errors.push(message));
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted/i.test(message.text())) errors.push(message.text());
  });
  try {
    await page.goto(`${origin}/${hash}`);
    await use(page);
    expect(errors).toEqual([]);
  } catch (cause) {
    const text = await page.locator("body").innerText().catch(String);
    throw new Error(`Errors of the page: ${errors.join()}. It shows: ${text}`, { cause });
  } finally {
    await context.close();
  }
};

/** Balances requests round-robin, and cancels a request when its client disconnects. */
const startBalancer = async (origins: ReadonlyArray<string>) => {
  let count = 0;
  const balancer = createServer((near, response) => {
    const { headers, method, url } = near;
    const far = request(origins[count++ % origins.length] + url!, { headers, method }, (answer) => {
      response.writeHead(answer.statusCode!, answer.headers);
      answer.pipe(response);
    });
    far.on("error", () => response.destroy());
    response.on("close", () => far.destroy());
    near.pipe(far);
  });
  await once(balancer.listen(0, "127.0.0.1"), "listening");
  const { port } = balancer.address() as AddressInfo;
  return { origin: `http://127.0.0.1:${port}`, close: () => balancer.close() };
};

const openChat = async (page: Page, id: number) => {
  await page.waitForSelector("h1:text('Contract bot')");
  await page.evaluate((to) => (location.hash = to), `#chat/${id}`);
  await page.waitForSelector(".stored");
};

// Playwright takes half a minute to find a label among 70,000 elements.
const question = (page: Page) => page.locator("textarea");
const openNewChat = async (page: Page) => {
  await page.getByRole("link", { name: "New chat" }).click();
  // Until then, the field belongs to the open chat.
  await page.getByText("Create a chat with a name or a user reference").waitFor();
};
const ask = async (page: Page, text: string) => {
  await question(page).fill(text);
  await question(page).press("Enter");
};
const storedAnswer = (page: Page) => page.locator(".stored .markdown").last();
const waitForAnswer = (page: Page) => page.waitForSelector(".pending", { state: "detached" });
const sessionEntries = (page: Page) => page.evaluate(() => Object.entries(sessionStorage));
/** The distance from the end of the history, in pixels. */
const distance = (page: Page) =>
  page.locator(".scroller").evaluate(({ scrollTop }) => Math.abs(Math.round(scrollTop)));

describe("the playground's key", () => {
  it("the key is removed from the address, and kept only in this tab", () =>
    visit(async (page) => {
      await page.waitForSelector("h1:text('Contract bot')");
      expect(page.url()).toBe(`${server.target.origin}/`);
      const places = await page.evaluate(() => [localStorage.length, document.cookie]);
      expect(await sessionEntries(page)).toEqual([["parley-key", server.target.key]]);
      expect(places).toEqual([0, ""]);
      await page.reload();
      await page.waitForSelector("h1:text('Contract bot')");
      await question(page).fill("A draft");
      await page.getByRole("button", { name: "Forget key" }).click();
      await page.getByLabel("API key").waitFor();
      expect(await sessionEntries(page)).toEqual([]);
    }));

  it("a link with a malformed key leads to the key field", () =>
    visit(
      async (page) => {
        await page.getByRole("alert").getByText("The key is not valid").waitFor();
        expect(page.url()).toBe(`${server.target.origin}/`);
      },
      {},
      "#key=100%",
    ));

  it("the pages work in a browser that blocks their storage", () =>
    visit(async (page) => {
      await page.addInitScript(() => {
        for (const name of ["sessionStorage", "localStorage"]) {
          const get = () => {
            throw new DOMException("Access is denied", "SecurityError");
          };
          Object.defineProperty(window, name, { get });
        }
      });
      await page.reload();
      await page.getByRole("button", { name: "Light or dark theme" }).click();
      await page.getByLabel("API key").fill(server.target.key);
      await page.getByLabel("API key").press("Enter");
      await page.waitForSelector("h1:text('Contract bot')");
      expect(page.url()).toBe(`${server.target.origin}/`);
      await ask(page, "short");
      await page.locator(".stored").getByText("A short answer.").waitFor();
      await page.goto(`${server.target.origin}/docs`);
      await page.getByLabel("x-api-key").first().waitFor();
    }));

  it("a wrong key is rejected with a sentence, and Details reveals the code and request id", () =>
    visit(
      async (page) => {
        const field = page.getByLabel("API key");
        const isValid = () => field.evaluate((element: HTMLInputElement) => element.validity.valid);
        await field.fill("schlüssel");
        await field.press("Enter");
        expect(await isValid()).toBe(false);
        await page.getByLabel("API key").fill("wrong");
        await page.getByLabel("API key").press("Enter");
        await page.getByRole("alert").getByText("The key is not valid").waitFor();
        expect(await page.locator(".actions").innerText()).toBe("");
        expect(await page.getByText("401002").isVisible()).toBe(false);
        await page.getByText("Details").click();
        await page.getByText("401002").waitFor();
        await page.getByText(/x-request-id/).waitFor();
      },
      {},
      "",
    ));

  it("a revoked key leads back to the key field, and the question is kept as a draft", () =>
    visit(async (page) => {
      await page.waitForSelector("h1:text('Contract bot')");
      const { id } = await client.createChat();
      await openChat(page, id);
      const isAsk = /\/ask/;
      await page.route(isAsk, (route) =>
        route.fulfill({
          status: 401,
          json: { status: 401, code: 401002, message: "API_KEY_NOT_VALID" },
        }),
      );
      await ask(page, "Is it lost?");
      await page.getByText("Enter another one.").waitFor();
      await page.unroute(isAsk);
      await page.getByLabel("API key").fill(server.target.key);
      await page.getByLabel("API key").press("Enter");
      await page.waitForSelector(".stored");
      expect(await question(page).inputValue()).toBe("Is it lost?");
    }));
});

describe("the playground's start page", () => {
  it("the first question creates a chat that is named after it and has a hello message", () =>
    visit(async (page) => {
      await page.waitForSelector("h1:text('Contract bot')");
      await page.getByText("A language model answers.").waitFor();
      // The question stays in view while the page changes to the new chat.
      await page.evaluate(() => {
        const counts = new Set<number>();
        Object.assign(window, { counts });
        new MutationObserver(() => {
          const count = document.querySelectorAll(".question").length;
          if (count + counts.size > 0) counts.add(count);
        }).observe(document.body, { childList: true, subtree: true });
      });
      await page.keyboard.type("long");
      await page.keyboard.press("Enter");
      await page.waitForSelector(".question:text-is('long')");
      await page.getByText(server.target.chatBot.helloMessage).waitFor();
      expect(await page.evaluate("[...counts]")).toEqual([1]);
      await page.locator(".stored").getByText("It ends.").waitFor();
      await waitForAnswer(page);
      expect(await storedAnswer(page).innerText()).toBe(long);
      await page.locator(".chats").getByText("long", { exact: true }).first().waitFor();
      const name = "😀".repeat(60);
      await openNewChat(page);
      await ask(page, `${name} and more`);
      await page.waitForSelector(`h2:text-is("${name}")`);
    }));

  it("the page suggests the chatbot's questions, but only to holders of a key", async () => {
    const read = async (headers: Record<string, string>) =>
      (await fetch(`${server.target.origin}/playground/questions`, { headers })).json();
    expect(await read({})).toMatchObject({ questions: [] });
    expect(await read({ "x-api-key": server.target.unknownKey })).toMatchObject({ questions: [] });
    expect(await read({ "x-api-key": server.target.key })).toMatchObject({
      questions: ["Ports", "Keys"],
    });
    await visit(async (page) => {
      await page.getByRole("button", { name: "Ports" }).click();
      await page.waitForSelector(".question:text-is('Ports')");
      await page.waitForSelector("h2:text-is('Ports')");
    });
  });

  it("a form creates a chat with a name and a user reference", () =>
    visit(async (page) => {
      await page.getByText("Create a chat with a name or a user reference").click();
      await page.getByLabel("Name", { exact: true }).fill("Größe 🚲");
      await page.getByLabel(/^User reference/).fill("user-7");
      await page.getByRole("button", { name: "Create chat" }).click();
      await page.getByText(server.target.chatBot.helloMessage).waitFor();
      await page.locator(".chats").getByText("Größe 🚲").waitFor();
      await page.locator(".view").getByText("user-7").waitFor();
      expect(await page.title()).toBe("Größe 🚲 · Contract bot");
    }));
});

describe("the list of chats", () => {
  it("the list is paged with an exact total, and a reload keeps the page and the search", async () => {
    const mark = crypto.randomUUID();
    for (let at = 0; at < 30; at++) await client.createChat({ name: `${mark} ${at}` });
    await visit(async (page) => {
      await page.getByRole("searchbox").fill(mark);
      await page.getByText("1–25 of 30").waitFor();
      expect(await page.locator(".chats li").count()).toBe(25);
      await page.getByRole("button", { name: "Older chats" }).click();
      const names = [4, 3, 2, 1, 0].map((at) => `${mark} ${at}`);
      await page.getByText("26–30 of 30").waitFor();
      expect(await page.locator(".chats .name").allInnerTexts()).toEqual(names);
      await page.reload();
      await page.getByText("26–30 of 30").waitFor();
      expect(await page.getByRole("searchbox").inputValue()).toBe(mark);
      // The chats on the remembered page may since have been erased.
      const beyond = JSON.stringify({ page: 9, search: mark });
      await page.evaluate((list) => sessionStorage.setItem("parley-list", list), beyond);
      await page.reload();
      await page.getByText("26–30 of 30").waitFor();
      await page.waitForSelector(".chats li");
      const newer = page.getByRole("button", { name: "Newer chats" });
      expect(await newer.locator("svg").isVisible()).toBe(true);
      await newer.click();
      await page.getByText("1–25 of 30").waitFor();
    });
  });

  it("no name or user reference hides the history, widens the page or is invisible", async () => {
    const long = await client.createChat({ name: "W".repeat(255), userRef: "W".repeat(60) });
    const blank = await client.createChat({ name: " \n " });
    await visit(async (page) => {
      await openChat(page, long.id);
      const size = await page.evaluate(() => ({
        history: document.querySelector(".scroller")!.clientHeight,
        overflow: document.documentElement.scrollWidth - innerWidth,
      }));
      expect(size.history).toBeGreaterThan(400);
      expect(size.overflow).toBeLessThanOrEqual(0);
      await openChat(page, blank.id);
      await page.waitForSelector(`h2:text-is('Chat ${blank.id}')`);
      await client.ask({ chat_id: blank.id, query: "What is it called?" });
      await page.reload();
      await page.waitForSelector("h2:text-is('What is it called?')");
    }, phone);
  });

  it("the list finds a user's chats, groups them by day, and shows an unnamed chat's first question", async () => {
    const userRef = `user-${crypto.randomUUID()}`;
    const chat = await client.createChat({ userRef });
    await client.ask({ chat_id: chat.id, query: "What was first?" });
    await client.ask({ chat_id: chat.id, query: "What was second?" });
    await visit(async (page) => {
      const before = (days: number) => new Date(Date.now() - days * 864e5).toISOString();
      const older = [0, 1, 400].map((days, at) => ({
        ...chat,
        id: chat.id - at - 1,
        name: `named ${days}`,
        _createTime: before(days),
      }));
      const json = { status: 200, data: [chat, ...older], meta: { total: 4 } };
      const ofUser = new RegExp(`/chats\\?userRef=${userRef}&`);
      await page.route(ofUser, (route) => route.fulfill({ json }));
      await page.getByRole("searchbox").fill(userRef);
      await page.getByText("named 400").waitFor();
      await page.locator(".chats").getByText("What was first?").waitFor();
      const days = await page.locator(".chats h2").allInnerTexts();
      expect(days).toEqual(["Today", "Yesterday", expect.stringMatching(/^\d+ \w+ 20\d\d$/)]);
    });
  });
});

describe("an answer", () => {
  it("a person sees an answer as it arrives, even after leaving the chat and returning", () =>
    visit(async (page) => {
      const { id } = await client.createChat();
      await openChat(page, id);
      await ask(page, "long");
      await page.waitForSelector(".streaming :text('word3')");
      expect(await page.locator(".streaming .markdown").innerText()).not.toContain("It ends.");
      await page.getByRole("link", { name: "New chat" }).click();
      await page.goBack();
      await page.waitForSelector(".streaming");
      await waitForAnswer(page);
      expect(await storedAnswer(page).innerText()).toBe(long);
      await page.getByText("2 entries").waitFor();
      expect(await page.getByRole("status").last().innerText()).toBe(`Answer: ${long}`);
    }));

  it("an answer shows that it was flagged, and its other details once expanded", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "How do I build a weapon?");
      await page.getByText("Flagged: violence").waitFor();
      const { chatBot } = server.target;
      await page.getByText(chatBot.moderationErrorMessage, { exact: true }).waitFor();
      await ask(page, "short");
      await waitForAnswer(page);
      const facts = page.locator("article").last().locator("details");
      expect(await facts.getByText("Moderation: none").isVisible()).toBe(false);
      await facts.getByTitle("Details").click();
      await facts.getByText("Moderation: none").waitFor();
      await facts.getByText(/^Entry \d+$/).waitFor();
      await facts.locator("time").waitFor();
    });
  });

  it("an answer is copied as Markdown, a code block on its own, and the chat is saved as a file", async () => {
    const { id } = await client.createChat({ name: "To keep" });
    await visit(
      async (page) => {
        await openChat(page, id);
        await ask(page, "code");
        await waitForAnswer(page);
        const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
        await page.getByText("sh", { exact: true }).waitFor();
        await page.getByRole("button", { name: "Copy code" }).click();
        await page.getByRole("button", { name: "Copied" }).waitFor();
        expect(await clipboard()).toBe("echo hello");
        await page.getByRole("button", { name: "Copied" }).waitFor({ state: "detached" });
        await page.getByRole("button", { name: "Copy answer" }).last().click();
        await page.getByRole("button", { name: "Copied" }).waitFor();
        expect(await clipboard()).toBe(code);
        const [file] = await Promise.all([
          page.waitForEvent("download"),
          page.getByRole("button", { name: "Save as Markdown" }).click(),
        ]);
        const text = await readFile(await file.path(), "utf8");
        expect(text).toMatch(/^# To keep\n\nHello.*\n\n> code\n\n```sh\necho hello/s);
        const size = (name: string) =>
          page
            .getByRole("heading", { name })
            .evaluate((element) => getComputedStyle(element).fontSize);
        expect(await size("One")).not.toBe(await size("Three"));
      },
      { permissions: ["clipboard-read", "clipboard-write"] },
    );
  });

  it("code has colours, legible in both themes, while its text stays one; without them it is plain", async () => {
    const { id } = await client.createChat();
    await client.ask({ chat_id: id, query: "coloured" });
    const kinds = (page: Page) =>
      page.evaluate(() => [...CSS.highlights].map(([kind, { size }]) => `${size} ${kind}`));
    for (const colorScheme of ["light", "dark"] as const) {
      await visit(
        async (page) => {
          await openChat(page, id);
          const all = ["keyword", "string", "number", "comment"];
          await expect.poll(() => kinds(page)).toEqual(all.map((kind) => `1 ${kind}`));
          const html = await page.locator("pre code").innerHTML();
          expect(html).toBe('const one = "1" + 1; // one');
          // Axe does not see highlights, but the same colours on an element.
          await page.evaluate(() => {
            const code = document.querySelector("pre code")!;
            for (const kind of CSS.highlights.keys()) {
              const { color } = getComputedStyle(code, `::highlight(${kind})`);
              const copy = code.parentNode!.appendChild(document.createElement("code"));
              Object.assign(copy, { textContent: kind }).style.color = color;
            }
          });
          await expectAccessible(page, `coloured code (${colorScheme})`);
          await page.getByRole("link", { name: "New chat" }).click();
          await page.locator("pre").waitFor({ state: "detached" });
          await expect.poll(() => kinds(page)).toEqual(all.map((kind) => `0 ${kind}`));
        },
        { colorScheme },
      );
    }
    await visit(async (page) => {
      await page.route("**/highlight.js", (route) => route.abort());
      const failed = page.waitForEvent("requestfailed");
      await openChat(page, id);
      await failed;
      await page.getByText('const one = "1" + 1; // one').waitFor();
      expect(await kinds(page)).toEqual([]);
    });
  });

  it.each([["missing"], ["forbidden"]])(
    "an answer is copied even if the browser's clipboard is %s, and the button keeps the focus",
    async (state) => {
      const { id } = await client.createChat();
      await client.ask({ chat_id: id, query: "short" });
      await visit(async (page) => {
        await page.addInitScript((isMissing) => {
          const writeText = () => Promise.reject(new DOMException("No", "NotAllowedError"));
          const value = isMissing ? undefined : { writeText };
          Object.defineProperty(navigator, "clipboard", { value });
        }, state === "missing");
        await page.reload();
        await openChat(page, id);
        await page.getByRole("button", { name: "Copy answer" }).last().press("Enter");
        await page.getByRole("button", { name: "Copied" }).waitFor();
        expect(await page.evaluate(() => document.activeElement!.tagName)).toBe("BUTTON");
        await question(page).press("Control+V");
        expect(await question(page).inputValue()).toBe("A short **answer**.");
      });
    },
  );

  it("a page zoomed to 400% leaves room for the history", async () => {
    const { id } = await client.createChat();
    await visit(
      async (page) => {
        await openChat(page, id);
        const height = await page.locator(".scroller").evaluate((box) => box.clientHeight);
        expect(height).toBeGreaterThan(120);
      },
      // 1280 by 1024 at 400%
      { viewport: { width: 320, height: 256 } },
    );
  });

  it("the page runs no script from an answer, and loads nothing from other origins", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      const elsewhere: Array<string> = [];
      page.on("request", (request) => {
        if (!request.url().startsWith(server.target.origin)) elsewhere.push(request.url());
      });
      await openChat(page, id);
      await ask(page, "hostile");
      await waitForAnswer(page);
      const content = await storedAnswer(page).evaluate((answer) => ({
        active: answer.querySelectorAll("script, img, svg, iframe, [onerror], [onload]").length,
        links: [...answer.querySelectorAll("a")].map(({ href, rel }) => [href, rel]),
        text: answer.textContent,
      }));
      const rel = "noopener noreferrer nofollow";
      expect(content).toMatchObject({
        active: 0,
        links: [
          ["https://elsewhere.example/picture.png", rel],
          ["https://elsewhere.example/", rel],
          ["https://elsewhere.example/build", rel],
        ],
        text: expect.stringContaining("<script>window.harmed = 1</script>"),
      });
      expect(await page.evaluate("window.harmed")).toBeUndefined();
      expect(elsewhere).toEqual([]);
    });
  });

  it("each block of an answer and the chat's name follow the direction of their text", async () => {
    const { id } = await client.createChat({ name: "سؤال عن الفاتورة" });
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "languages");
      await waitForAnswer(page);
      const blocks = await storedAnswer(page).evaluate((answer) =>
        [...answer.children].map((element) => [
          element.textContent,
          getComputedStyle(element).direction,
        ]),
      );
      expect(blocks).toEqual([
        ["Größe und Änderung", "ltr"],
        ["مرحبا بالعالم", "rtl"],
        ["مرحبا", "rtl"],
        ["مرحبا", "rtl"],
        ["Done 👩‍👩‍👧", "ltr"],
      ]);
      expect(
        await page.locator(".view h2").evaluate((element) => getComputedStyle(element).direction),
      ).toBe("rtl");
    });
  });

  it("tables scroll in their own box, wrap between words and align their columns", async () => {
    const { id } = await client.createChat();
    await client.ask({ chat_id: id, query: "table" });
    await visit(async (page) => {
      await openChat(page, id);
      const { column, isInside, lines } = await page.locator("table").evaluate((element) => ({
        column: getComputedStyle(element.querySelector("td:last-child")!).textAlign,
        isInside: document.documentElement.scrollWidth <= innerWidth,
        // With one letter per line, there would be a dozen lines.
        lines: Math.round(element.querySelector("th")!.clientHeight / 24),
      }));
      expect([column, isInside]).toEqual(["right", true]);
      // Models write `<br>` in cells, because Markdown has no line break there.
      expect(await page.locator("tr").last().innerText()).toBe("A\nB\tC\nD");
      expect(lines).toBeLessThan(4);
    }, phone);
  });

  it("a question and the open chat stand out even in forced colours", async () => {
    const { id } = await client.createChat({ name: "Contrast" });
    await client.ask({ chat_id: id, query: "short" });
    await visit(
      async (page) => {
        await openChat(page, id);
        const widths = await page.evaluate(() =>
          [".question", ".chats [aria-current]"].map((selector) => {
            const { borderTopColor, outlineStyle, backgroundColor } = getComputedStyle(
              document.querySelector(selector)!,
            );
            return outlineStyle === "solid" || borderTopColor !== backgroundColor;
          }),
        );
        expect(widths).toEqual([true, true]);
      },
      { forcedColors: "active" },
    );
  });

  it.each(Object.keys(tangles))(
    "a chat with an awkward answer (%s) takes the page at most five seconds of computing, and still works",
    async (name) => {
      const { id } = await client.createChat();
      await client.ask({ chat_id: id, query: "short" });
      await client.ask({ chat_id: id, query: name });
      await visit(async (page) => {
        const devtools = await page.context().newCDPSession(page);
        // The CPU time of the page's thread, which other work on the machine does not lengthen.
        await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
        const computing = async () => {
          const { metrics } = await devtools.send("Performance.getMetrics");
          return metrics.find(({ name }) => name === "TaskDuration")!.value;
        };
        const before = await computing();
        await openChat(page, id);
        expect(await storedAnswer(page).locator("*").count()).toBeGreaterThan(0);
        const seconds = (await computing()) - before;
        expect(seconds).toBeLessThan(5);
        await ask(page, "short");
        await page.getByText("4 entries").waitFor();
      });
    },
  );
});

describe("the history", () => {
  it("the history keeps its position while an answer arrives, and a button leads to the newest entry", async () => {
    const { id } = await client.createChat();
    for (let at = 0; at < 20; at++) await client.ask({ chat_id: id, query: "short" });
    await visit(async (page) => {
      await openChat(page, id);
      const scroller = page.locator(".scroller");
      await scroller.evaluate((element) => (element.scrollTop = -element.scrollHeight / 2));
      const toNewest = page.getByRole("button", { name: "Jump to latest" });
      await toNewest.waitFor();
      await ask(page, "long");
      await expect.poll(() => distance(page)).toBe(0);
      await page.waitForSelector(".streaming :text('word3')");
      await scroller.evaluate((element) => (element.scrollTop = -element.scrollHeight / 2));
      const row = page.locator("article").nth(10);
      const { y } = (await row.boundingBox())!;
      await waitForAnswer(page);
      expect((await row.boundingBox())!.y).toBeCloseTo(y, 0);
      await toNewest.click();
      await expect.poll(() => distance(page)).toBe(0);
      await toNewest.waitFor({ state: "detached" });
    });
  });

  it("ten thousand entries take less than 80 MB, and a key press is handled within 100 ms", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      // The stores have their own tests of long histories.
      await page.route(`**/chats/${id}/history?*`, (route) => {
        const { searchParams } = new URL(route.request().url());
        const [limit, number] = [
          Number(searchParams.get("limit")),
          Number(searchParams.get("page")),
        ];
        const data = Array.from({ length: limit }, (_, at) => {
          const entry = 10_000 - (number - 1) * limit - at;
          return {
            id: entry,
            chat_id: id,
            question: `Question ${entry}`,
            answer: `Answer ${entry}\n\n- a\n- b`,
            moderation: "none",
            flagged: false,
            _createTime: "2026-11-25T00:00:00.000Z",
          };
        });
        return route.fulfill({ json: { status: 200, data, meta: { total: 10_000 } } });
      });
      await openChat(page, id);
      await page.getByText("10,000 entries").waitFor();
      expect(await page.getByText("Answer 10000").isVisible()).toBe(true);
      const scroller = page.locator(".scroller");
      // Loading older entries does not move the ones in view.
      const first = page.getByText("Answer 9901", { exact: true });
      await scroller.evaluate((element) => (element.scrollTop = -element.scrollHeight));
      await first.evaluate((element) => element.scrollIntoView());
      const { y } = (await first.boundingBox())!;
      await page.getByText("Answer 9895", { exact: true }).waitFor({ state: "attached" });
      expect((await first.boundingBox())!.y).toBeCloseTo(y, -1);
      await scroller.evaluate(async (element) => {
        while (
          !element.textContent!.includes("Answer 1\n") &&
          !/Question 1(?!\d)/.test(element.textContent!)
        ) {
          element.scrollTop = -element.scrollHeight;
          await new Promise(requestAnimationFrame);
        }
        element.scrollTop = -element.scrollHeight;
      });
      await page.getByText("Answer 1", { exact: true }).waitFor();
      const devtools = await page.context().newCDPSession(page);
      await devtools.send("HeapProfiler.collectGarbage");
      const { usedSize } = await devtools.send("Runtime.getHeapUsage");
      expect(usedSize).toBeLessThan(80_000_000);
      const delays = await question(page).evaluate(async (field: HTMLTextAreaElement) => {
        const delays: Array<number> = [];
        for (const text of ["a", "ab", "abc", "abcd", "abcde"]) {
          const begin = performance.now();
          field.value = text;
          field.dispatchEvent(new InputEvent("input", { bubbles: true }));
          await new Promise((resume) => requestAnimationFrame(() => setTimeout(resume)));
          delays.push(performance.now() - begin);
        }
        return delays.toSorted((a, b) => a - b);
      });
      // The machine may be busy, so only the shortest delay counts.
      expect(delays[0]).toBeLessThan(100);
    });
  }, 120_000);

  it("26 kB that arrive in 5,000 pieces change the page at most 25 times a second", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await page.evaluate(() => {
        const changes = { count: 0 };
        Object.assign(window, { changes });
        new MutationObserver(() => changes.count++).observe(document.body, {
          characterData: true,
          childList: true,
          subtree: true,
        });
      });
      const begin = Date.now();
      await ask(page, "fast");
      await page.waitForSelector(".streaming");
      await waitForAnswer(page);
      const seconds = (Date.now() - begin) / 1000;
      expect(seconds).toBeGreaterThan(9);
      const count = await page.evaluate(() => (window as any).changes.count);
      expect(count).toBeGreaterThan(20);
      expect(count).toBeLessThan(25 * seconds);
    });
  });
});

describe("asking", () => {
  it("a question that is too long is not sent, and stays in the field", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "x".repeat(201));
      await page
        .getByText("A question can have at most 200 characters; this one has 201.")
        .waitFor();
      expect(await question(page).inputValue()).toHaveLength(201);
      expect(await page.locator(".pending").count()).toBe(0);
      // An emoji counts as one character.
      await ask(page, "😀".repeat(200));
      await waitForAnswer(page);
      expect((await client.history(id).page()).total).toBe(2);
    });
  });

  it("pressing Enter to end an IME composition asks nothing, even in Safari", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await question(page).fill("にほん");
      for (const keys of [{ isComposing: true, keyCode: 13 }, { keyCode: 229 }]) {
        await question(page).dispatchEvent("keydown", { key: "Enter", ...keys });
      }
      expect(await question(page).inputValue()).toBe("にほん");
      expect(await page.locator(".pending").count()).toBe(0);
    });
  });

  it("a failed ask shows a sentence and an action, and the question survives a reload", async () => {
    const { id } = await client.createChat();
    await visit(
      async (page) => {
        await openChat(page, id);
        await ask(page, "fail");
        const failure = page.locator(".view [role=alert]");
        await failure.getByText("Could not answer. Nothing was stored.").waitFor();
        await failure.getByText("Details").click();
        await failure.getByText("500002").waitFor();
        const requestId = await failure.locator("code").last().innerText();
        expect(server.log()).toContain(requestId);

        await page.getByRole("button", { name: "Requests" }).click();
        const latest = page.getByRole("dialog").locator("details").first();
        await latest.locator("time").first().waitFor();
        expect(await latest.locator("summary").first().innerText()).toMatch(/\d+ ms/);
        const copy = latest.getByTitle(/^Copy code|^Copied/);
        await copy.nth(0).click();
        const clipboard = () => page.evaluate(() => navigator.clipboard.readText());
        const curl = await clipboard();
        expect(curl.match(/-H '?"?[\w-]+/g)).toEqual(['-H "x-api-key', "-H 'content-type"]);
        expect(curl).toContain(`-d '{"chat_id":${id},"query":"fail"}'`);
        expect(curl).not.toContain(server.target.key);
        await copy.nth(1).click();
        expect(await clipboard()).toContain(`JSON.stringify({"chat_id":${id},"query":"fail"})`);
        await page.keyboard.press("Escape");

        await page.reload();
        await page.waitForSelector(".failed .question:text-is('fail')");
        await page.getByRole("button", { name: "Try again" }).click();
        await failure.waitFor();
        await page.getByRole("button", { name: "Edit" }).click();
        expect(await question(page).inputValue()).toBe("fail");
        await openChat(page, id - 1).catch(() => undefined);
        expect(await question(page).inputValue()).toBe("");
        await page.goBack();
        await page.waitForSelector(".stored");
        expect(await question(page).inputValue()).toBe("fail");
      },
      { permissions: ["clipboard-read", "clipboard-write"] },
    );
  });

  it("Escape stops an answer, cancels the request to the model and stores nothing", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      const before = model.cancelled.length;
      await ask(page, "long");
      await page.waitForSelector(".streaming :text('word3')");
      await question(page).press("Escape");
      await page.getByText("Stopped. Nothing was stored.").waitFor();
      expect(await question(page).evaluate((element) => element === document.activeElement)).toBe(
        true,
      );
      await expect.poll(() => model.cancelled.length, { timeout: 10_000 }).toBe(before + 1);
      expect((await client.history(id).page()).total).toBe(1);
      await page.getByRole("button", { name: "Requests" }).click();
      const stop = page.getByRole("dialog").locator("details", { hasText: "DELETE" });
      // The newest request is open.
      if ((await stop.getAttribute("open")) === null) await stop.locator("summary").click();
      const sample = stop.locator("code", { hasText: /'idempotency-key: [\d-]+'/ });
      await sample.waitFor();
    });
  });

  it("a stop in one tab ends the answer in a copy of the tab, and a new try asks again", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "long");
      await page.waitForSelector(".streaming :text('word3')");
      // As if the person had duplicated the tab, which copies its session storage.
      const popup = page.waitForEvent("popup");
      await page.evaluate(() => void window.open(location.href));
      const copy = await popup;
      await copy.waitForSelector(".streaming");
      await page.getByRole("button", { name: "Stop" }).click();
      for (const tab of [page, copy]) await tab.getByText("Stopped. Nothing was stored.").waitFor();
      expect((await client.history(id).page()).total).toBe(1);
      await page.getByRole("button", { name: "Try again" }).click();
      await waitForAnswer(page);
      expect((await client.history(id).page()).total).toBe(2);
    });
  });

  it("while the stop does not reach the server, the page shows what the answer becomes", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "long");
      await page.waitForSelector(".streaming :text('word3')");
      await page.route(/\/ask/, () => undefined);
      await page.getByRole("button", { name: "Stop" }).click();
      await waitForAnswer(page);
      expect(await storedAnswer(page).innerText()).toBe(long);
    });
  });

  it("behind a balancer, a stop that reaches the other server ends the answer, too", async () => {
    const shared = {
      ...model.settings,
      DATABASE_URL: inject("postgresUrl"),
      PARLEY_SCHEMA: `playground_${process.pid}`,
    };
    const first = await launch("postgres", shared);
    const provision = { PARLEY_PROVISION: join(first.directory, "provision.json") };
    const second = await launch("postgres", { ...shared, ...provision });
    const balancer = await startBalancer([first.target.origin, second.target.origin]);
    const pair = makeClient({ origin: balancer.origin, apiKey: first.target.key });
    await visit(
      async (page) => {
        for (let round = 0; round < 4; round++) {
          const { id } = await pair.createChat();
          await openChat(page, id);
          await ask(page, "long");
          await page.waitForSelector(".streaming :text('word3')");
          // In every other round, an extra request makes the stop reach the other server.
          if (round % 2 === 1) await pair.details();
          await question(page).press("Escape");
          await page.getByText("Stopped. Nothing was stored.").waitFor();
          await new Promise((resume) => setTimeout(resume, 6000));
          expect((await pair.history(id).page()).total).toBe(1);
        }
      },
      { origin: balancer.origin },
      `#key=${first.target.key}`,
    );
    balancer.close();
    await Promise.all([first.stop(), second.stop()]);
  }, 120_000);

  it("the page speaks the reader's language", () =>
    visit(
      async (page) => {
        await page.getByRole("heading", { name: "Fragen Sie Contract bot" }).waitFor();
        expect(await page.locator("html").getAttribute("lang")).toBe("de");
        await page.getByRole("link", { name: "Handbuch" }).waitFor();
        await page.getByPlaceholder("Chats suchen").waitFor();
        await page.getByRole("button", { name: "Anfragen" }).waitFor();
      },
      { locale: "de-AT" },
    ));

  it("the search finds a chat by its first question, and entries of the open chat", async () => {
    const { id } = await client.createChat();
    for (const query of ["Ports", "Where is the zebra?", "Keys"])
      await client.ask({ chat_id: id, query });
    const { id: other } = await client.createChat();
    await client.ask({ chat_id: other, query: "Lost giraffe" });
    await visit(async (page) => {
      await page.locator(".chats .name:text-is('Lost giraffe')").waitFor();
      await page.getByPlaceholder("Search chats").fill("GIRAFFE");
      await expect
        .poll(() => page.locator(".chats .name").allInnerTexts())
        .toEqual(["Lost giraffe"]);
      await openChat(page, id);
      await page.getByTitle("Search in this chat").click();
      await page.getByPlaceholder("Search in this chat").fill("zebra");
      await page.getByText(/^1 of \d+ entries contain this/).waitFor();
      expect(await page.locator(".matches .question").allInnerTexts()).toEqual([
        "Where is the zebra?",
      ]);
      await expectAccessible(page, "the search in a chat");
      await page.getByTitle("Search in this chat").click();
      await page.locator(".scroller .question:text-is('Keys')").waitFor();
    });
  });

  it("formulas, footnotes, entities and task lists stay whole, and a screen reader hears text", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "notation");
      await waitForAnswer(page);
      const text = await storedAnswer(page).innerText();
      expect(text).toContain("Ä ä – $a_1 * b_2 * c$ \\(x_1 * y_1\\) &constructor; costs $5 or $6");
      expect(text).toContain("A note.[^1]");
      expect(text).toContain("„A” &auml; 🖼 ö");
      const link = storedAnswer(page).getByRole("link");
      expect(await link.getAttribute("href")).toBe("https://elsewhere.example/?a=1&b=2");
      expect(text).toContain("[^1]: The footnote.");
      expect(text).toMatch(/☑\s+done\s+☐\s+open/);
      const spoken = await page
        .locator("main [role=status], .unseen[role=status]")
        .last()
        .innerText();
      expect(spoken).toContain("Answer: Ä ä");
      expect(spoken).toContain("bold");
      expect(spoken).toContain("„A” &auml; 🖼 ö ☑ done ☐ open A note.");
      expect(spoken).not.toMatch(/\*\*|\[x\]/);
    });
  });

  it("a print shows the chat and nothing else", async () => {
    const { id } = await client.createChat();
    for (const query of ["Ports", "Keys"]) await client.ask({ chat_id: id, query });
    await visit(async (page) => {
      await openChat(page, id);
      await page.emulateMedia({ media: "print" });
      expect(await page.locator(".question:visible").count()).toBe(2);
      for (const hidden of [".bar", ".side", ".composer", ".actions"])
        expect(await page.locator(`${hidden}:visible`).count(), hidden).toBe(0);
      await page.evaluate(() => (document.documentElement.dataset["theme"] = "dark"));
      const color = page.locator("body").evaluate((body) => getComputedStyle(body).color);
      expect(await color, "ink").toBe("rgb(29, 33, 37)");
      await page.goto(`${server.target.origin}/docs`);
      const closed = page.locator("details:not([open])").first().getByRole("table");
      expect(await closed.evaluate((table) => table.checkVisibility())).toBe(true);
      const code = page.locator("pre");
      await code.first().waitFor();
      const cut = (all: ReadonlyArray<Element>) =>
        all.filter(({ clientWidth, scrollWidth }) => scrollWidth > clientWidth).length;
      expect(await code.evaluateAll(cut)).toBe(0);
    });
  });

  it.each([
    [844, 390],
    [320, 568],
  ])("the first sight of %d by %d pixels has the heading and the field", (width, height) =>
    visit(
      async (page) => {
        for (const part of [page.locator(".welcome h2"), question(page)]) {
          await part.waitFor();
          const { y, height: size } = (await part.boundingBox())!;
          expect(y).toBeGreaterThanOrEqual(0);
          expect(y + size).toBeLessThanOrEqual(height);
        }
      },
      { viewport: { width, height } },
    ),
  );

  it("an answer continues after the connection is lost for a while, and after a reload", async () => {
    const { id } = await client.createChat();
    const connections = new Set<() => void>();
    let isDown = false;
    const relay = await startRelay(server.target.origin, (near, far) => {
      if (isDown) return near.destroy();
      near.pipe(far).pipe(near);
      connections.add(() => near.destroy());
      return undefined;
    });
    const { origin } = new URL(relay.url);
    await visit(
      async (page) => {
        await openChat(page, id);
        const before = model.questions.length;
        await ask(page, "long");
        await page.waitForSelector(".streaming :text('word3')");
        isDown = true;
        for (const cut of connections) cut();
        await page.locator(".reconnecting").waitFor();
        // Longer than the client keeps retrying by itself.
        await new Promise((resume) => setTimeout(resume, 6000));
        isDown = false;
        await page.evaluate(() => dispatchEvent(new Event("online")));
        await waitForAnswer(page);
        expect(await storedAnswer(page).innerText()).toBe(long);

        await ask(page, "long");
        await page.waitForSelector(".streaming :text('word3')");
        await page.reload();
        await page.waitForSelector(".streaming :text('word5')");
        await waitForAnswer(page);
        expect(await page.locator(".stored .markdown").allInnerTexts()).toEqual([
          server.target.chatBot.helloMessage,
          long,
          long,
        ]);
        expect(model.questions.length).toBe(before + 2);
      },
      { origin },
    );
    relay.close();
  });

  it("two tabs show each other's entries, and say when they wait for each other", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      const other = await page.context().newPage();
      await other.goto(`${server.target.origin}/#key=${server.target.key}`);
      await openChat(other, id);
      await ask(page, "long");
      await other.getByText("Another tab is waiting for an answer in this chat.").waitFor();
      await ask(other, "short");
      await other.getByText("Waiting for the answer in another tab").waitFor();
      // After two seconds, the tab shows how long it has waited.
      await other.getByText(/· \d s/).waitFor();
      await waitForAnswer(page);
      await waitForAnswer(other);
      const questions = ["long", "short"];
      await expect.poll(() => page.locator(".question").allInnerTexts()).toEqual(questions);
      await expect.poll(() => other.locator(".question").allInnerTexts()).toEqual(questions);
      // An ask from another program appears in a tab only when the tab is focused.
      await client.ask({ chat_id: id, query: "By a program" });
      await page.evaluate(() => dispatchEvent(new Event("focus")));
      await page.waitForSelector(".question:text-is('By a program')");
    });
  });

  it("the playground works without a mouse", () =>
    visit(
      async (page) => {
        const { keyboard } = page;
        const focused = () =>
          page.evaluate(
            () =>
              document.activeElement!.getAttribute("aria-label") ||
              document.activeElement!.textContent ||
              (document.activeElement as HTMLElement).title,
          );
        const tabTo = async (name: string, by = "Tab") => {
          for (let presses = 0; presses < 60; presses++) {
            await keyboard.press(by);
            if ((await focused()) === name) return;
          }
          throw new Error(`Tab does not reach ${name}`);
        };
        await page.getByLabel("API key").waitFor();
        await keyboard.type(server.target.key);
        await keyboard.press("Enter");
        await page.waitForSelector(".chats li");
        await keyboard.type("By keyboard");
        await keyboard.press("Enter");
        await page.waitForSelector("h2:text('By keyboard')");
        await waitForAnswer(page);
        await keyboard.type("long");
        await keyboard.press("Enter");
        await page.waitForSelector(".streaming :text('word3')");
        await tabTo("Stop");
        await keyboard.press("Enter");
        await page.locator(".cancelled").waitFor();
        expect(await focused()).toBe("Your question");
        await keyboard.press("ArrowUp");
        expect(await question(page).inputValue()).toBe("By keyboard");
        await keyboard.press("Control+A");
        await keyboard.type("short");
        await keyboard.press("Enter");
        await page.waitForSelector(".question:text-is('short')");
        await page.waitForSelector(".streaming, .waiting", { state: "detached" });
        expect(await storedAnswer(page).innerText()).toBe("A short answer.");
        await keyboard.press("Control+K");
        expect(await focused()).toContain("Search chats");
        await tabTo("Requests");
        await keyboard.press("Enter");
        await page.getByRole("dialog").waitFor();
        await keyboard.press("Escape");
        expect(await focused()).toBe("Requests");
      },
      {},
      "",
    ));
});

it("the playground names the origin that the answers interface must allow, and then asks there", async () => {
  const separate = { ...model.settings, PARLEY_ASK_PORT: "0" };
  const closed = await launch("memory", separate);
  const { origin } = closed.target;
  await visit(
    async (page) => {
      const { id } = await makeClient({ origin, apiKey: closed.target.key }).createChat();
      await openChat(page, id);
      await page.getByText(`Add ${origin} to PARLEY_CORS_ORIGINS`).waitFor();
    },
    { origin },
    `#key=${closed.target.key}`,
  ).finally(closed.stop);
  const { port } = new URL(origin);
  const open = await launch("memory", {
    ...separate,
    PARLEY_PORT: port,
    PARLEY_CORS_ORIGINS: origin,
  });
  await visit(
    async (page) => {
      const { id } = await makeClient({ origin, apiKey: open.target.key }).createChat();
      await openChat(page, id);
      await ask(page, "long");
      await waitForAnswer(page);
      expect(await storedAnswer(page).innerText()).toBe(long);
    },
    { origin },
    `#key=${open.target.key}`,
  ).finally(open.stop);
});

describe("with the server's own documentation", () => {
  let own: TestServer;
  beforeAll(async () => {
    own = await launch("memory", { PARLEY_KNOWLEDGE_DIR: " " });
  });
  afterAll(() => own?.stop());
  const at = (options: BrowserContextOptions = {}) => ({ ...options, origin: own.target.origin });
  const hash = () => `#key=${own.target.key}`;

  it("the links in an answer lead to the guide, and the page says who answers", () =>
    visit(
      async (page) => {
        await page.getByText("The chatbot answers with quotes from its documents.").waitFor();
        await page.getByRole("link", { name: "Connect a model" }).waitFor();
        const questions = page.locator(".questions button");
        await questions.first().waitFor();
        expect(await questions.count()).toBe(3);
        await ask(page, "Can I use my own PostgreSQL database?");
        await waitForAnswer(page);
        const links = await storedAnswer(page)
          .locator("a")
          .evaluateAll((all) => all.map((element) => (element as HTMLAnchorElement).pathname));
        expect(links).toContain("/docs/faq");
        expect(links.filter((path) => !path.startsWith("/docs/"))).toEqual([]);
        const [source] = await Promise.all([
          page.context().waitForEvent("page"),
          storedAnswer(page).getByText("› Can I use my own PostgreSQL database?").click(),
        ]);
        await source.waitForSelector("h2:text-is('Can I use my own PostgreSQL database?')");
        expect(new URL(source.url()).hash).toBe("#can-i-use-my-own-postgresql-database");
      },
      at(),
      hash(),
    ));

  it("the choice of light or dark applies to every page, and the pages link to one another", () =>
    visit(
      async (page) => {
        const scheme = () =>
          page.evaluate(() => getComputedStyle(document.documentElement).colorScheme);
        await page.getByRole("button", { name: "Light or dark theme" }).click();
        expect(await scheme()).toBe("dark");
        for (const name of ["Guide", "API", "Playground"]) {
          await page.getByRole("link", { name, exact: true }).click();
          await page.waitForSelector(`.bar [aria-current]:text-is('${name}')`);
          expect(await scheme()).toBe("dark");
        }
        await page.getByRole("button", { name: "Light or dark theme" }).click();
        expect(await scheme()).toBe("light");
      },
      at(),
      hash(),
    ));

  it.each([
    ["light", desktop],
    ["dark", phone],
  ] as const)("the %s guide is accessible, and its code can be copied", (colorScheme, device) =>
    visit(
      async (page) => {
        for (const path of ["/docs/guide", "/docs/faq", "/docs/settings", "/docs/guide?q=port"]) {
          await page.goto(own.target.origin + path);
          await page.waitForSelector("h1");
          await expectAccessible(page, path);
        }
        await page.getByRole("button", { name: "Copy" }).first().click();
        await page.getByRole("button", { name: "Copied" }).waitFor();
        expect(await page.evaluate(() => navigator.clipboard.readText())).toContain("PARLEY_PORT");
      },
      at({ ...device, colorScheme, permissions: ["clipboard-read", "clipboard-write"] }),
      hash(),
    ),
  );
});

describe.each([
  ["light", "desktop", desktop],
  ["dark", "desktop", desktop],
  ["light", "phone", phone],
  ["dark", "phone", phone],
] as const)("the playground in %s mode on a %s", (colorScheme, _, device) => {
  it("every view of the playground is accessible", () =>
    visit(
      async (page) => {
        await expectAccessible(page, "key");
        await page.getByLabel("API key").fill("wrong");
        await page.getByLabel("API key").press("Enter");
        await page.getByRole("alert").waitFor();
        await expectAccessible(page, "wrong key");
        await page.getByLabel("API key").fill(server.target.key);
        await page.getByLabel("API key").press("Enter");
        await page.getByRole("button", { name: "Ports" }).waitFor();
        await expectAccessible(page, "first sight");
        await page.getByText("With a name").click();
        await expectAccessible(page, "new chat");
        await page.evaluate(() => (location.hash = "chats"));
        await page.waitForSelector(".chats li");
        await expectAccessible(page, "list");
        await page.getByRole("button", { name: "Requests" }).click();
        await expectAccessible(page, "requests");
        await page.getByRole("button", { name: "Close" }).click();
        await openNewChat(page);
        await ask(page, "weapon");
        await page.getByText("Flagged: violence").waitFor();
        await ask(page, "languages");
        await waitForAnswer(page);
        await ask(page, "table");
        await waitForAnswer(page);
        await ask(page, "code");
        await waitForAnswer(page);
        await page.getByTitle("Details").last().click();
        await expectAccessible(page, "answers");
        await ask(page, "endless");
        await page.waitForSelector(".streaming :text('word3')");
        await expectAccessible(page, "answering");
        await page.getByRole("button", { name: "Stop" }).click();
        await page.locator(".cancelled").waitFor();
        await expectAccessible(page, "stopped");
        await ask(page, "fail");
        await page.waitForSelector(".failure");
        await page.locator(".failure").getByText("Details").click();
        await expectAccessible(page, "failed");
        await ask(page, "x".repeat(201));
        await page.locator(".composer [role=alert]").waitFor();
        await expectAccessible(page, "too long a question");
      },
      { ...device, colorScheme },
      "",
    ));
});
