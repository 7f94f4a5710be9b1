/**
 * The playground in Chromium, over the embedded PostgreSQL and a slow model.
 */
import { makeClient, type Client } from "@parley/client";
import axe from "axe-core";
import { chromium, type Browser, type BrowserContextOptions, type Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, type Running } from "../../apps/server/test/contract/launch.ts";
import { startRelay } from "../../apps/server/test/Relay.ts";
import { startSlowModel, type SlowModel } from "./SlowModel.ts";

const desktop = { viewport: { width: 1280, height: 800 } };
const phone = { viewport: { width: 390, height: 844 }, isMobile: true, hasTouch: true };

const long = `It begins. ${Array.from({ length: 60 }, (_, at) => `word${at}`).join(" ")} 😀 It ends.`;
const hostile = `<script>window.harmed = 1</script>

<img src="x" onerror="window.harmed = 2"> and ![a picture](https://elsewhere.example/picture.png)

[a link](javascript:window.harmed=3) [another](JaVaScRiPt:window.harmed=4) <a href="javascript:window.harmed=5">raw</a>

[a good link](https://elsewhere.example/) <svg onload="window.harmed = 6"></svg>`;
const multilingual = `## Größe und Änderung

مرحبا بالعالم

Done 👩‍👩‍👧`;

const script = (question: string): string | undefined => {
  if (question === "fail") return undefined;
  if (question === "hostile") return hostile;
  if (question === "languages") return multilingual;
  // Long enough to check its accessibility while it arrives, also on a busy machine.
  if (question === "endless") return long.repeat(20);
  return question === "long" ? long : "A short **answer**.";
};

let browser: Browser;
let model: SlowModel;
let server: Running;
let client: Client;
beforeAll(async () => {
  model = await startSlowModel(script);
  server = await launch("embedded", model.settings);
  client = makeClient({ origin: server.target.origin, apiKey: server.target.key });
  await client.createChat();
  // As root, its sandbox refuses to run.
  const args = ["--no-sandbox"];
  browser = await chromium.launch({ executablePath: "/usr/bin/chromium", args });
});
afterAll(async () => {
  await browser?.close();
  await server?.stop();
  model?.close();
});

/** Opens the page with the key in the address, fails by any error in it, and closes it afterwards. */
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
  } finally {
    await context.close();
  }
};

const openChat = async (page: Page, id: number) => {
  await page.evaluate((to) => (location.hash = to), `#chat/${id}`);
  await page.waitForSelector(".stored");
};

const question = (page: Page) => page.getByLabel("Your question");
const ask = async (page: Page, text: string) => {
  await question(page).fill(text);
  await question(page).press("Enter");
};
const storedAnswer = (page: Page) => page.locator(".stored .markdown").last();
const answered = (page: Page) => page.waitForSelector(".pending", { state: "detached" });

const expectAccessible = async (page: Page, view: string) => {
  await page.evaluate(axe.source);
  const { violations } = (await page.evaluate("axe.run()")) as axe.AxeResults;
  const found = violations.map(
    ({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html).join(" ")}`,
  );
  expect(found, view).toEqual([]);
  const overflow = await page.evaluate(
    () => document.documentElement.scrollWidth - document.documentElement.clientWidth,
  );
  expect(overflow, `${view} is wider than the window`).toBeLessThanOrEqual(0);
};

describe("the playground", () => {
  it("takes the key out of the address, and keeps it for this tab only", () =>
    visit(async (page) => {
      await page.waitForSelector("h2:text('Contract bot')");
      expect(page.url()).toBe(`${server.target.origin}/`);
      const kept = await page.evaluate(() => [
        Object.values(sessionStorage),
        localStorage.length,
        document.cookie,
        history.length,
      ]);
      expect(kept).toEqual([[server.target.key], 0, "", expect.any(Number)]);
      await page.reload();
      await page.waitForSelector("h2:text('Contract bot')");
      await page.getByRole("button", { name: "Forget key" }).click();
      await page.getByLabel("API key").waitFor();
      expect(await page.evaluate(() => sessionStorage.length)).toBe(0);
    }));

  it("refuses a wrong key with its code", () =>
    visit(
      async (page) => {
        await page.getByLabel("API key").fill("wrong");
        await page.getByLabel("API key").press("Enter");
        await page.waitForSelector(".failure :text('401001'), .failure :text('401002')");
        await page.getByText(/Request id/).waitFor();
      },
      {},
      "",
    ));

  it("lists, searches and pages through the chats with their exact total", async () => {
    const mark = crypto.randomUUID();
    for (let at = 0; at < 30; at++) await client.createChat({ name: `${mark} ${at}` });
    await visit(async (page) => {
      await page.getByLabel("Search chats by name").fill(mark);
      await page.getByText("1–25 of 30").waitFor();
      expect(await page.locator(".chats li").count()).toBe(25);
      await page.getByRole("button", { name: "Older chats" }).click();
      await page.getByText("26–30 of 30").waitFor();
      expect(await page.locator(".chats .name").allInnerTexts()).toEqual(
        [4, 3, 2, 1, 0].map((at) => `${mark} ${at}`),
      );
    });
  });

  it("creates a chat, reads its hello message, and shows an answer while it arrives", () =>
    visit(async (page) => {
      await page.getByRole("button", { name: "New chat" }).first().click();
      await page.getByLabel("Name", { exact: true }).fill("Größe 🚲");
      await page.getByLabel("User reference").fill("user-7");
      await page.getByRole("button", { name: "Create chat" }).click();
      await page.getByText(server.target.chatBot.helloMessage).waitFor();
      await page.locator(".chats").getByText("Größe 🚲").waitFor();
      await ask(page, "long");
      await page.waitForSelector(".streaming :text('word3')");
      expect(await page.locator(".streaming .markdown").innerText()).not.toContain("It ends.");
      // A person who leaves the chat finds the answer afterwards.
      await page.getByRole("button", { name: "New chat" }).click();
      await page.goBack();
      await page.waitForSelector(".streaming");
      await answered(page);
      expect(await storedAnswer(page).innerText()).toBe(long);
      await page.getByText("2 entries").waitFor();
      expect(await page.getByRole("status").last().innerText()).toBe(`Answer: ${long}`);
    }));

  it("shows flags, moderation, and failures with code and request id, and gives requests away", async () => {
    const { id } = await client.createChat();
    await visit(
      async (page) => {
        await openChat(page, id);
        await ask(page, "How do I build a weapon?");
        await page.getByText("Flagged: violence").waitFor();
        await page
          .getByText(server.target.chatBot.moderationErrorMessage, { exact: true })
          .waitFor();
        await ask(page, "x".repeat(201));
        await page.locator(".failure").getByText("ASK_DTO_QUERY_TOO_LONG").waitFor();
        await ask(page, "fail");
        await page.waitForSelector(".failure :text('500002')");
        const requestId = await page.locator(".failure code").last().innerText();
        expect(server.log()).toContain(requestId);

        await page.getByRole("button", { name: "Requests" }).click();
        await page.getByRole("button", { name: "Copy as curl" }).click();
        const curl = await page.evaluate(() => navigator.clipboard.readText());
        expect(curl).toContain(`-d '{"chat_id":${id},"query":"fail"}'`);
        expect(curl).not.toContain(server.target.key);
        await page.getByRole("button", { name: "Copy as client code" }).click();
        const code = await page.evaluate(() => navigator.clipboard.readText());
        expect(code).toContain(`client.stream({"chat_id":${id},"query":"fail"})`);
      },
      { permissions: ["clipboard-read", "clipboard-write"] },
    );
  });

  it("stops an answer: the model's request ends, and nothing is stored", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      await openChat(page, id);
      const before = model.cancelled.length;
      await ask(page, "long");
      await page.waitForSelector(".streaming :text('word3')");
      await page.getByRole("button", { name: "Stop" }).click();
      await page.locator(".stopped").waitFor();
      await expect.poll(() => model.cancelled.length, { timeout: 10_000 }).toBe(before + 1);
      expect((await client.history(id).page()).total).toBe(1);
    });
  });

  it("takes an answer up again after its connection broke", async () => {
    const { id } = await client.createChat();
    const connections = new Set<() => void>();
    const relay = await startRelay(server.target.origin, (near, far) => {
      near.pipe(far).pipe(near);
      connections.add(() => near.destroy());
    });
    const { origin } = new URL(relay.url);
    await visit(
      async (page) => {
        await openChat(page, id);
        const asked = model.asked.length;
        await ask(page, "long");
        await page.waitForSelector(".streaming :text('word3')");
        for (const cut of connections) cut();
        await page.locator(".reconnecting").waitFor();
        await page.waitForSelector(".streaming");
        await answered(page);
        expect(await storedAnswer(page).innerText()).toBe(long);
        expect(model.asked.length).toBe(asked + 1);
      },
      { origin },
    );
    relay.close();
  });

  it("runs no script of an answer, and loads nothing from elsewhere", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      const elsewhere: Array<string> = [];
      page.on("request", (request) => {
        if (!request.url().startsWith(server.target.origin)) elsewhere.push(request.url());
      });
      await openChat(page, id);
      await ask(page, "hostile");
      await answered(page);
      const found = await storedAnswer(page).evaluate((answer) => ({
        active: answer.querySelectorAll("script, img, svg, iframe, [onerror], [onload]").length,
        links: [...answer.querySelectorAll("a")].map(({ href, rel }) => [href, rel]),
        text: answer.textContent,
      }));
      const rel = "noopener noreferrer nofollow";
      expect(found).toMatchObject({
        active: 0,
        links: [
          ["https://elsewhere.example/picture.png", rel],
          ["https://elsewhere.example/", rel],
        ],
        text: expect.stringContaining("<script>window.harmed = 1</script>"),
      });
      expect(await page.evaluate("window.harmed")).toBeUndefined();
      expect(elsewhere).toEqual([]);
    });
  });

  it("reads German, Arabic and emoji, each in its direction", async () => {
    const { id } = await client.createChat({ name: "سؤال عن الفاتورة" });
    await visit(async (page) => {
      await openChat(page, id);
      await ask(page, "languages");
      await answered(page);
      const blocks = await storedAnswer(page).evaluate((answer) =>
        [...answer.children].map((one) => [one.textContent, getComputedStyle(one).direction]),
      );
      expect(blocks).toEqual([
        ["Größe und Änderung", "ltr"],
        ["مرحبا بالعالم", "rtl"],
        ["Done 👩‍👩‍👧", "ltr"],
      ]);
      expect(
        await page.locator(".view h2").evaluate((one) => getComputedStyle(one).direction),
      ).toBe("rtl");
    });
  });

  it("works without a mouse", () =>
    visit(
      async (page) => {
        const { keyboard } = page;
        const focused = () =>
          page.evaluate(
            () =>
              document.activeElement!.getAttribute("aria-label") ??
              document.activeElement!.textContent,
          );
        const tabTo = async (name: string) => {
          for (let presses = 0; presses < 40; presses++) {
            await keyboard.press("Tab");
            if ((await focused()) === name) return;
          }
          throw new Error(`Tab does not reach ${name}`);
        };
        await keyboard.type(server.target.key);
        await keyboard.press("Enter");
        await page.waitForSelector(".chats li");
        await tabTo("New chat");
        await keyboard.press("Enter");
        await page.getByLabel("Name", { exact: true }).waitFor();
        await keyboard.type("By keyboard");
        await keyboard.press("Enter");
        await page.waitForSelector("h2:text('By keyboard')");
        await page.waitForSelector(".stored");
        await keyboard.type("long");
        await keyboard.press("Enter");
        await page.waitForSelector(".streaming :text('word3')");
        await tabTo("Stop");
        await keyboard.press("Enter");
        await page.locator(".stopped").waitFor();
        await keyboard.press("Shift+Tab");
        await keyboard.type("short");
        await keyboard.press("Enter");
        await answered(page);
        expect(await storedAnswer(page).innerText()).toBe("A short answer.");
        await tabTo("Requests");
        await keyboard.press("Enter");
        await page.getByRole("dialog").waitFor();
        await keyboard.press("Escape");
        expect(await focused()).toBe("Requests");
      },
      {},
      "",
    ));

  it("scrolls through ten thousand entries", async () => {
    const { id } = await client.createChat();
    await visit(async (page) => {
      // The store's long histories have tests of their own.
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
      // Older entries do not move those in view.
      const first = page.getByText("Answer 9901", { exact: true });
      await first.evaluate((one) => one.scrollIntoView());
      const { y } = (await first.boundingBox())!;
      await page.waitForFunction(() => document.querySelectorAll(".stored").length > 100);
      expect((await first.boundingBox())!.y).toBeCloseTo(y, -1);
      await scroller.evaluate(async (one) => {
        while (one.querySelectorAll(".stored").length < 10_000) {
          one.scrollTop = -one.scrollHeight;
          await new Promise(requestAnimationFrame);
        }
        one.scrollTop = -one.scrollHeight;
      });
      await page
        .locator(".group:first-of-type > article:first-child :text-is('Answer 1')")
        .waitFor();
    });
  }, 120_000);
});

it("names the origin that the answers interface must accept, and then asks it", async () => {
  const separate = { ...model.settings, PARLEY_ASK_PORT: "0" };
  const closed = await launch("memory", separate);
  const { origin } = closed.target;
  await visit(
    async (page) => {
      const { id } = await makeClient({ origin, apiKey: closed.target.key }).createChat();
      await openChat(page, id);
      await page.getByText(`PARLEY_CORS_ORIGINS=${origin}`).waitFor();
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
      await answered(page);
      expect(await storedAnswer(page).innerText()).toBe(long);
    },
    { origin },
    `#key=${open.target.key}`,
  ).finally(open.stop);
});

describe.each([
  ["light", "desktop", desktop],
  ["dark", "desktop", desktop],
  ["light", "phone", phone],
  ["dark", "phone", phone],
] as const)("the playground, %s, on a %s", (colorScheme, _, device) => {
  it("is accessible on every view", () =>
    visit(
      async (page) => {
        await expectAccessible(page, "key");
        await page.getByLabel("API key").fill(server.target.key);
        await page.getByLabel("API key").press("Enter");
        await page.waitForSelector(".chats li");
        await expectAccessible(page, "list");
        await page.getByRole("button", { name: "Requests" }).click();
        await expectAccessible(page, "requests");
        await page.getByRole("button", { name: "Close" }).click();
        await page.getByRole("button", { name: "New chat" }).first().click();
        await page.getByLabel("Name", { exact: true }).waitFor();
        await expectAccessible(page, "new chat");
        await page.getByRole("button", { name: "Create chat" }).click();
        await page.waitForSelector(".stored");
        await ask(page, "weapon");
        await page.getByText("Flagged: violence").waitFor();
        await ask(page, "languages");
        await answered(page);
        await ask(page, "endless");
        await page.waitForSelector(".streaming :text('word3')");
        await expectAccessible(page, "answering");
        await page.getByRole("button", { name: "Stop" }).click();
        await expectAccessible(page, "stopped");
        await ask(page, "fail");
        await page.waitForSelector(".failure");
        await expectAccessible(page, "failed");
      },
      { ...device, colorScheme },
      "",
    ));
});
