/**
 * The playground in Chromium: keys, lists of chats and the server's own documentation.
 */
import { makeClient } from "@parley/client";
import { type BrowserContextOptions } from "playwright-core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { launch, type TestServer } from "../../apps/server/test/contract/launch.ts";
import { desktop, expectAccessible, phone } from "./Browsers.ts";
import {
  ask,
  client,
  long,
  model,
  openChat,
  openNewChat,
  question,
  server,
  sessionEntries,
  storedAnswer,
  visit,
  waitForAnswer,
} from "./PlaygroundUnderTest.ts";

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
        await page.locator(".stored").last().locator(".sources li").first().waitFor();
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
