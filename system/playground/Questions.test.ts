/**
 * Questions in the playground: asking, stopping, failing.
 */
import { expect, it } from "vitest";
import { startRelay } from "../../apps/server/test/Relay.ts";
import { expectAccessible } from "./Browsers.ts";
import {
  ask,
  client,
  long,
  model,
  openChat,
  question,
  server,
  storedAnswer,
  visit,
  visitChat,
  waitForAnswer,
} from "./PlaygroundUnderTest.ts";

it("a question that is too long is not sent, and stays in the field", () =>
  visitChat({}, async (page, id) => {
    await ask(page, "x".repeat(201));
    await page.getByText("A question can have at most 200 characters; this one has 201.").waitFor();
    expect(await question(page).inputValue()).toHaveLength(201);
    expect(await page.locator(".pending").count()).toBe(0);
    // An emoji counts as one character.
    await ask(page, "😀".repeat(200));
    await waitForAnswer(page);
    expect((await client.history(id).page()).total).toBe(2);
  }));

it("pressing Enter to end an IME composition asks nothing, even in Safari", () =>
  visitChat({}, async (page) => {
    await question(page).fill("にほん");
    for (const keys of [{ isComposing: true, keyCode: 13 }, { keyCode: 229 }]) {
      await question(page).dispatchEvent("keydown", { key: "Enter", ...keys });
    }
    expect(await question(page).inputValue()).toBe("にほん");
    expect(await page.locator(".pending").count()).toBe(0);
  }));

it("a failed ask shows a sentence and an action, and the question survives a reload", () =>
  visitChat(
    {},
    async (page, id) => {
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
  ));

it("Escape stops an answer, cancels the request to the model and stores nothing", () =>
  visitChat({}, async (page, id) => {
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
  }));

it("a stop in one tab ends the answer in a copy of the tab, and a new try asks again", () =>
  visitChat({}, async (page, id) => {
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
  }));

it("while the stop does not reach the server, the page shows what the answer becomes", () =>
  visitChat({}, async (page) => {
    await ask(page, "long");
    await page.waitForSelector(".streaming :text('word3')");
    await page.route(/\/ask/, () => undefined);
    await page.getByRole("button", { name: "Stop" }).click();
    await waitForAnswer(page);
    expect(await storedAnswer(page).innerText()).toBe(long);
  }));

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
    await expect.poll(() => page.locator(".chats .name").allInnerTexts()).toEqual(["Lost giraffe"]);
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

it("formulas, footnotes, entities and task lists stay whole, and a screen reader hears text", () =>
  visitChat({}, async (page) => {
    await ask(page, "notation");
    await waitForAnswer(page);
    const text = await storedAnswer(page).innerText();
    expect(text).toContain("Ä ä – $a_1 * b_2 * c$ \\(x_1 * y_1\\) &constructor; costs $5 or $6");
    expect(text).toContain("A note.[^1]");
    expect(text).toContain("„A” &auml; 🖼 ö");
    const link = storedAnswer(page).getByRole("link");
    expect(await link.getAttribute("href")).toBe("https://elsewhere.example/?a=1&b=2");
    expect(text).toMatch(/\[\^1\]: The footnote\.\n+\[\^2\]: Another\./);
    expect(text).toMatch(/☑\s+done\s+☐\s+open/);
    const spoken = await page
      .locator("main [role=status], .unseen[role=status]")
      .last()
      .innerText();
    expect(spoken).toContain("Answer: Ä ä");
    expect(spoken).toContain("bold");
    expect(spoken).toContain("„A” &auml; 🖼 ö ☑ done ☐ open A note.");
    expect(spoken).not.toMatch(/\*\*|\[x\]/);
  }));

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

it("two tabs show each other's entries, and say when they wait for each other", () =>
  visitChat({}, async (page, id) => {
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
  }));

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
