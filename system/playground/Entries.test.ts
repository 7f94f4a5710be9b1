/**
 * What the playground changes in chats and shows of their entries, in Chromium.
 */
import { makeClient, type Client } from "@parley/client";
import type { BrowserContextOptions, Page } from "playwright-core";
import { beforeAll, expect, it } from "vitest";
import { desktop, expectAccessible, phone } from "./Browsers.ts";
import { openChat, server, visit as visitPage } from "./PlaygroundUnderTest.ts";

let client: Client;
beforeAll(() => {
  client = makeClient({ origin: server.target.origin, apiKey: server.target.fullKey });
});

/** Opens a chat. */
const visit = (
  chatId: number | null,
  use: (page: Page) => Promise<void>,
  options: BrowserContextOptions = {},
  key = server.target.fullKey,
) =>
  visitPage(
    async (page) => {
      await page.waitForSelector("h1:text-is('Contract bot')");
      if (chatId !== null) await openChat(page, chatId);
      await use(page);
    },
    options,
    `#key=${key}`,
  );

const button = (page: Page, name: string) =>
  page.locator(".view").getByRole("button", { name, exact: true });

const createChat = async (name: string | null) => {
  const { id } = await client.createChat({ name });
  return { id, entry: await client.ask({ chat_id: id, query: "What does it cost?" }) };
};

it("a person renames a chat in place, with the keyboard alone, and an empty name is none", async () => {
  const { id } = await createChat("Before");
  await visit(id, async (page) => {
    const nameOf = async () => (await client.chats({ id }).page()).data[0]!.name;
    await button(page, "Rename").focus();
    await page.keyboard.press("Enter");
    await page.getByLabel("Name", { exact: true }).fill("Nothing");
    await page.keyboard.press("Escape");
    await page.waitForSelector("h2:text-is('Before')");
    await page.waitForSelector("button[title=Rename]:focus");
    await page.keyboard.press("Enter");
    await page.getByLabel("Name", { exact: true }).fill("Größe 🚲");
    await page.keyboard.press("Enter");
    await page.waitForSelector("h2:text-is('Größe 🚲')");
    await page.locator(".chats").getByText("Größe 🚲").waitFor();
    await page.waitForSelector("button[title=Rename]:focus");
    expect(await nameOf()).toBe("Größe 🚲");
    await page.keyboard.press("Enter");
    await page.getByLabel("Name", { exact: true }).fill(" ");
    await page.keyboard.press("Enter");
    await page.waitForSelector("h2:text-is('What does it cost?')");
    expect(await nameOf()).toBeNull();
  });
});

it("a chat is deleted only after a question that tells what is erased", async () => {
  const { id } = await createChat("Delete me");
  await visit(id, async (page) => {
    const total = async () => (await client.chats({ id }).page()).total;
    await button(page, "Delete").click();
    await page.getByText("its 2 entries with sources, ratings and comments").waitFor();
    await page.keyboard.press("Enter");
    await page.locator("dialog[open]").waitFor({ state: "detached" });
    expect(await total()).toBe(1);
    await button(page, "Delete").click();
    await button(page, "Delete chat").click();
    await page.getByText("Create a chat with a name or a user reference").waitFor();
    await page.locator(".chats").getByText("Delete me").waitFor({ state: "detached" });
    expect(await total()).toBe(0);
    expect(await page.locator(".failure").count()).toBe(0);
  });
});

it("a person rates an answer, comments on it, and takes both back", async () => {
  const { entry, id } = await createChat(null);
  const read = async () => {
    const history = client.history(id, { id: entry.id, include: ["feedback"] });
    const { comment, rating } = (await history.page()).data[0]!;
    return [rating, comment];
  };
  await visit(id, async (page) => {
    await button(page, "Bad answer").last().click();
    await page.getByLabel("Comment").fill("Last year's price");
    await page.keyboard.press("Enter");
    await page.getByText("Last year's price").waitFor();
    expect(await read()).toEqual(["bad", "Last year's price"]);
    await page.reload();
    await page.getByText("Last year's price").waitFor();
    await button(page, "Good answer").last().click();
    await page.waitForSelector("[title='Good answer'][aria-pressed=true]");
    expect(await read()).toEqual(["good", "Last year's price"]);
    await button(page, "Good answer").last().click();
    await page.getByText("Last year's price").waitFor({ state: "detached" });
    expect(await read()).toEqual([null, null]);
  });
});

it("an answer has its sources below it, of which only web addresses are links", async () => {
  const { id } = await createChat(null);
  const sources = [
    { title: "Prices and dispatch", url: "https://shop.example/prices" },
    { title: "A leaflet in the shop" },
    { title: "A trap", url: "javascript:window.harmed=1" },
  ];
  await client.post(id, "It is free now.", { metadata: { sources } });
  await visit(id, async (page) => {
    const items = page.locator(".stored").last().locator(".sources li");
    await items.first().waitFor();
    expect(await items.allInnerTexts()).toEqual(sources.map(({ title }) => title));
    const addresses = items.locator("a").evaluateAll((links) => links.map(String));
    expect(await addresses).toEqual(["https://shop.example/prices"]);
  });
});

it("a posted entry is marked with its author, and the up arrow still recalls the last question", async () => {
  const { id } = await createChat(null);
  await client.post(id, "It is free now.", { metadata: { author: "Ann" } });
  await visit(id, async (page) => {
    await page.locator(".stored").last().getByText("Written by Ann").waitFor();
    await page.locator(".stored").first().getByText("Message without a question").waitFor();
    expect(await page.locator(".question").allInnerTexts()).toEqual(["What does it cost?"]);
    expect(await page.locator(".welcome").count()).toBe(0);
    await page.locator("textarea").press("ArrowUp");
    expect(await page.locator("textarea").inputValue()).toBe("What does it cost?");
  });
});

it("the list begins with the latest activity, or with the newest chat if the server refuses", async () => {
  const [older, newer] = [await createChat("The older chat"), await createChat("The newer chat")];
  await client.ask({ chat_id: older.id, query: "Again?" });
  await visit(null, async (page) => {
    const first = (name: string) =>
      page.waitForSelector(`.chats li:first-child :text-is("${name}")`);
    await first("The older chat");
    await client.ask({ chat_id: newer.id, query: "Again?" });
    await page.evaluate(() => dispatchEvent(new Event("focus")));
    await first("The newer chat");
    await client.ask({ chat_id: older.id, query: "Once more?" });
    const refusal = { status: 422, errors: [{ code: 4223013, message: "REFUSED", path: [] }] };
    await page.route(/_lastEntryTime/, (route) => route.fulfill({ status: 422, json: refusal }));
    await page.reload();
    await first("The newer chat");
    expect(await page.locator(".failure").count()).toBe(0);
  });
});

it("a change that the key's scopes do not allow is explained once and no longer offered", async () => {
  const { id } = await createChat("Kept");
  const use = async (page: Page) => {
    await button(page, "Rename").click();
    await page.getByLabel("Name", { exact: true }).fill("New");
    await page.keyboard.press("Enter");
    await page.getByText("This key does not allow that.").waitFor();
    await button(page, "Cancel").click();
    await button(page, "Delete").click();
    await button(page, "Delete chat").click();
    await page.locator("dialog").getByText("This key does not allow that.").waitFor();
    await page.keyboard.press("Escape");
    for (const name of ["Rename", "Delete"]) expect(await button(page, name).count()).toBe(0);
    expect(await button(page, "Good answer").count()).toBe(1);
  };
  await visit(id, use, {}, server.target.readKey);
});

it("the page counts to the question length that the server has told it", () =>
  visit(null, async (page) => {
    await page.route("**/", async (route) => {
      const response = await route.fetch();
      const text = await response.text();
      expect(text).toContain("questionLength&quot;:200");
      await route.fulfill({
        response,
        body: text.replace("Length&quot;:200", "Length&quot;:5000"),
      });
    });
    await page.reload();
    await page.locator("textarea").fill("x".repeat(4990));
    await page.getByText("10", { exact: true }).waitFor();
    await page.locator("textarea").fill("x".repeat(5001));
    await page.getByRole("alert").getByText("at most 5000 characters; this one has 5001").waitFor();
  }));

it.each([
  ["light", "Good answer", desktop],
  ["dark", "Bad answer", phone],
] as const)(
  "in the %s theme, the changes are accessible and fit the window",
  async (colorScheme, rating, device) => {
    const { id } = await createChat(null);
    await client.post(id, "It is free now.", { metadata: { author: "Ann" } });
    const use = async (page: Page) => {
      await button(page, rating).last().click();
      await page.getByLabel("Comment").waitFor();
      await expectAccessible(page, "the form for a comment");
      await button(page, "Rename").click();
      await expectAccessible(page, "the form for a name");
      await button(page, "Cancel").first().click();
      await button(page, "Delete").click();
      await expectAccessible(page, "the question before a deletion");
    };
    await visit(id, use, { ...device, colorScheme });
  },
);
