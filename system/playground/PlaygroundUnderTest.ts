/**
 * The playground in Chromium, with a server on a SQLite file and a slow model.
 */
import { makeClient, type Client } from "@parley/client";
import { type Browser, type BrowserContextOptions, type Page } from "playwright-core";
import { afterAll, beforeAll, expect } from "vitest";
import { launch, type TestServer } from "../../apps/server/test/contract/launch.ts";
import { desktop, launchBrowser } from "./Browsers.ts";
import { startSlowModel, type SlowModel } from "./SlowModel.ts";

export const long = `It begins. ${Array.from({ length: 60 }, (_, at) => `word${at}`).join(" ")} 😀 It ends.`;
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
export const code = "```sh\necho hello\n```\n\n# One\n\n### Three";
/** 26 kB in 5,000 pieces, in five kinds of block. */
const fast = Array.from(
  { length: 100 },
  (_, at) =>
    ["", "- ", "> ", "## ", "| a | b |\n| - | - |\n| "][at % 5] +
    Array.from({ length: 50 }, (_, word) => `w${at}${word}`).join(" "),
).join("\n\n");
/** Input that a Markdown parser may fail on, or take minutes to parse. */
export const tangles: Readonly<Record<string, string>> = {
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
  footnotes: "[^1]: a\n".repeat(12_000),
  "some footnotes": "[^1]: a\n".repeat(290),
  rows: `| a | b |\n| - | - |\n${Array.from({ length: 2000 }, (_, at) => `| ${at} | b |`).join("\n")}`,
};

const notation = String.raw`&Auml; &#xe4; &ndash; $a_1 * b_2 * c$ \(x_1 * y_1\) &constructor; costs $5 or $6 **bold**

&bdquo;A&rdquo; ${"`&auml;`"} ![&ouml;](https://elsewhere.example/?a=1&amp;b=2)

- [x] done
- [ ] open

A note.[^1]

[^1]: The footnote.
[^2]: Another.`;

const answers: Readonly<Record<string, string>> = {
  ...tangles,
  long,
  // Long enough to check its accessibility while it arrives, even on a busy machine.
  endless: long.repeat(20),
  hostile,
  languages: multilingual,
  table,
  notation,
  code,
  coloured: '```js\nconst one = "1" + 1; // one\n```',
  fast,
};
const script = (question: string): string | undefined =>
  question === "fail" ? undefined : (answers[question] ?? "A short **answer**.");

/** How many milliseconds each word of these answers takes. */
const pauses: Readonly<Record<string, number>> = { long: 60, endless: 60, fast: 2 };

let browser: Browser;
export let model: SlowModel;
export let server: TestServer;
export let client: Client;
beforeAll(async () => {
  model = await startSlowModel(script, (question) => pauses[question] ?? 0);
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
export const visit = async (
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

export const openChat = async (page: Page, id: number) => {
  await page.waitForSelector("h1:text('Contract bot')");
  await page.evaluate((to) => (location.hash = to), `#chat/${id}`);
  await page.waitForSelector(".stored");
};

// Playwright takes half a minute to find a label among 70,000 elements.
export const question = (page: Page) => page.locator("textarea");
export const openNewChat = async (page: Page) => {
  await page.getByRole("link", { name: "New chat" }).click();
  // Until then, the field belongs to the open chat.
  await page.getByText("Create a chat with a name or a user reference").waitFor();
};
export const ask = async (page: Page, text: string) => {
  await question(page).fill(text);
  await question(page).press("Enter");
};
export const storedAnswer = (page: Page) => page.locator(".stored .markdown").last();
export const waitForAnswer = (page: Page) =>
  page.waitForSelector(".pending", { state: "detached" });
export const sessionEntries = (page: Page) => page.evaluate(() => Object.entries(sessionStorage));
/** The distance from the end of the history, in pixels. */
export const distance = (page: Page) =>
  page.locator(".scroller").evaluate(({ scrollTop }) => Math.abs(Math.round(scrollTop)));

/** Creates a chat with answers to these questions, and opens it. */
export const visitChat = async (
  { questions = [], name = null }: { questions?: ReadonlyArray<string>; name?: string | null },
  use: (page: Page, id: number) => Promise<void>,
  options: BrowserContextOptions = {},
) => {
  const { id } = await client.createChat({ name });
  for (const query of questions) await client.ask({ chat_id: id, query });
  await visit(async (page) => {
    await openChat(page, id);
    await use(page, id);
  }, options);
};
