/**
 * Answers and histories in the playground.
 */
import { readFile } from "node:fs/promises";
import { type Page } from "playwright-core";
import { describe, expect, it } from "vitest";
import { expectAccessible, phone } from "./Browsers.ts";
import {
  ask,
  client,
  code,
  distance,
  long,
  openChat,
  question,
  server,
  storedAnswer,
  tangles,
  visit,
  visitChat,
  waitForAnswer,
} from "./PlaygroundUnderTest.ts";

describe("an answer", () => {
  it("a person sees an answer as it arrives, even after leaving the chat and returning", () =>
    visitChat({}, async (page) => {
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

  it("an answer shows that it was flagged, and its other details once expanded", () =>
    visitChat({}, async (page) => {
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
    }));

  it("an answer is copied as Markdown, a code block on its own, and the chat is saved as a file", () =>
    visitChat(
      { name: "To keep" },
      async (page) => {
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
    ));

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

  it("a page zoomed to 400% leaves room for the history", () =>
    visitChat(
      {},
      async (page) => {
        const height = await page.locator(".scroller").evaluate((box) => box.clientHeight);
        expect(height).toBeGreaterThan(120);
      },
      // 1280 by 1024 at 400%
      { viewport: { width: 320, height: 256 } },
    ));

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

  it("each block of an answer and the chat's name follow the direction of their text", () =>
    visitChat({ name: "سؤال عن الفاتورة" }, async (page) => {
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
    }));

  it("tables scroll in their own box, wrap between words and align their columns", () =>
    visitChat(
      { questions: ["table"] },
      async (page) => {
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
      },
      phone,
    ));

  it("a question and the open chat stand out even in forced colours", () =>
    visitChat(
      { name: "Contrast", questions: ["short"] },
      async (page) => {
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
    ));

  it("a chat with an awkward answer takes the page at most five seconds of computing, and still works", async () => {
    await visit(async (page) => {
      const devtools = await page.context().newCDPSession(page);
      // The CPU time of the page's thread, which other work on the machine does not lengthen.
      await devtools.send("Performance.enable", { timeDomain: "threadTicks" });
      const computing = async () => {
        const { metrics } = await devtools.send("Performance.getMetrics");
        return metrics.find(({ name }) => name === "TaskDuration")!.value;
      };
      for (const name of Object.keys(tangles)) {
        const { id } = await client.createChat();
        await client.ask({ chat_id: id, query: name });
        // Otherwise, the entries of the previous chat would count.
        await page.evaluate(() => (location.hash = ""));
        await page.locator(".welcome").waitFor();
        const before = await computing();
        await openChat(page, id);
        expect(await storedAnswer(page).locator("*").count(), name).toBeGreaterThan(0);
        expect((await computing()) - before, name).toBeLessThan(5);
        await ask(page, "short");
        await page.locator(".stored").nth(2).waitFor();
      }
    });
  }, 240_000);
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

  it("26 kB that arrive in 5,000 pieces change the page at most 25 times a second", () =>
    visitChat({}, async (page) => {
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
    }));
});
