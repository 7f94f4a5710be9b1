/**
 * The widget in Chromium, on another site's pages, which have a strict Content Security Policy.
 */
import { keyId } from "@parley/core";
import { signVisitorToken } from "@parley/http";
import axe from "axe-core";
import { Effect } from "effect";
import { createHmac } from "node:crypto";
import type { RequestListener } from "node:http";
import type { Socket } from "node:net";
import type { Browser, BrowserContextOptions, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { startRelay, type Relay } from "../../apps/server/test/Relay.ts";
import { makeKeys } from "../../test/keys.ts";
import { desktop, launchBrowser, phone } from "../playground/Browsers.ts";
import { startSlowModel, type SlowModel } from "../playground/SlowModel.ts";
import { launchShop, startSite, type Shop, type Site } from "./Shop.ts";

const long = `It begins. ${Array.from({ length: 80 }, (_, at) => `word${at}`).join(" ")} It ends.`;

let browser: Browser;
let model: SlowModel;
let server: Shop;
/** Relays connections from browsers to the server. */
let relay: Relay;
const connections = new Set<Socket>();
let key: string;
let id: string;
/** A site whose origin the key allows, and one whose origin it does not. */
let shop: Site;
let stranger: Site;
/** The site's signed-in user; `null` if nobody has signed in. */
let user: string | null = "user-1";
/** The lifetimes of the next tokens, in seconds. */
let lives: Array<number> = [];
const tokens: Array<string> = [];

/** A site whose policy allows nothing but the widget and the site's own backend. */
const listener: RequestListener = async (request, response) => {
  const { pathname, searchParams } = new URL(request.url!, "http://localhost");
  if (pathname === "/chat-token") {
    if (user === null) return void response.writeHead(401).end("{}");
    const expiresAt = new Date(Date.now() + 1000 * (lives.shift() ?? 3600));
    const signingSecret = createHmac("sha256", key).update("parley-visitor").digest("hex");
    const token = await Effect.runPromise(
      signVisitorToken({ keyId: id, signingSecret, visitor: user, expiresAt }),
    );
    tokens.push(token);
    return void response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ token, expires_at: expiresAt.toISOString() }));
  }
  const origin = searchParams.get("server") ?? new URL(relay.url).origin;
  if (pathname === "/logo.svg") {
    response.writeHead(200, { "content-type": "image/svg+xml" });
    return void response.end('<svg xmlns="http://www.w3.org/2000/svg" width="64" height="64"/>');
  }
  const frameSource = searchParams.has("frameless") ? "'none'" : origin;
  response.writeHead(200, {
    "content-type": "text/html; charset=utf-8",
    ...(searchParams.has("isolated") && {
      "cross-origin-embedder-policy": "require-corp",
      "cross-origin-opener-policy": "same-origin",
    }),
    "content-security-policy":
      `default-src 'none'; script-src ${origin}; frame-src ${frameSource}; connect-src 'self'; ` +
      "require-trusted-types-for 'script'; trusted-types 'none'",
  });
  const attributes = searchParams.get("attributes") ?? "";
  response.end(`<!doctype html>
<html lang="${searchParams.get("lang") ?? "en"}" dir="${searchParams.get("dir") ?? "ltr"}">
<head><title>Shop</title><meta name="viewport" content="width=device-width, initial-scale=1">
<script src="${origin}/widget.js${searchParams.get("version") ?? ""}" ${attributes.includes("data-key") ? "" : `data-key="${id}"`} ${attributes} async></script></head>
<body><main><h1>Shop</h1><button>Buy</button></main></body>
</html>`);
};

beforeAll(async () => {
  [key] = (await makeKeys(1)) as [string];
  id = keyId(key)!;
  [shop, stranger] = [await startSite(listener), await startSite(listener)];
  model = await startSlowModel((question) =>
    question === "fail" ? undefined : question === "long" ? long : "A short **answer**.",
  );
  const origins = [shop.originOf(), shop.originOf(sameSite)];
  server = await launchShop([key], origins, { ...model.settings, PARLEY_PAGES: "false" });
  relay = await startRelay(server.origin, (near, far) => {
    near.pipe(far).pipe(near);
    connections.add(near);
    near.on("close", () => connections.delete(near));
  });
  browser = await launchBrowser();
});
afterAll(async () => {
  await browser?.close();
  relay?.close();
  await server?.stop();
  model?.close();
  shop?.close();
  stranger?.close();
});

const sameSite = "127.0.0.1";

interface HostPage {
  readonly site?: Site;
  /** The host name of the site. */
  readonly name?: string;
  readonly attributes?: string;
  /** The query string of the script's address. */
  readonly version?: string;
  /** Whether the page is cross-origin isolated. */
  readonly isolated?: "yes";
  /** Whether the page's policy allows no frames. */
  readonly frameless?: "yes";
  readonly lang?: string;
  readonly dir?: string;
  /** The origin of the Parley server; by default, that of the relay. */
  readonly server?: string;
}

const addressOf = ({ site = shop, name, ...page }: HostPage) =>
  `${site.originOf(name)}/?${new URLSearchParams(page)}`;

/** Opens the page, and fails on any page error, any cookie and any request to another host. */
const visit = async (
  hostPage: HostPage,
  use: (page: Page, errors: Array<string>) => Promise<void>,
  device: BrowserContextOptions = desktop,
) => {
  const context = await browser.newContext({ ...desktop, ...device });
  const page = await context.newPage();
  const errors: Array<string> = [];
  const hosts = new Set<string>();
  page.on("pageerror", ({ message }) => errors.push(message));
  page.on("console", (message) => {
    if (/Content Security Policy|Trusted|Uncaught/i.test(message.text()))
      errors.push(message.text());
  });
  page.on("request", (request) => hosts.add(new URL(request.url()).origin));
  try {
    const address = addressOf(hostPage);
    await page.goto(address);
    await use(page, errors);
    expect(errors).toEqual([]);
    expect(await context.cookies()).toEqual([]);
    hosts.delete(new URL(address).origin);
    hosts.delete(hostPage.server ?? new URL(relay.url).origin);
    expect([...hosts]).toEqual([]);
  } finally {
    await context.close();
  }
};

const button = (page: Page) => page.locator("parley-widget section > button");
const frame = (page: Page) => page.frameLocator("parley-widget iframe");
const field = (page: Page) => frame(page).getByRole("textbox");
const ask = async (page: Page, text: string) => {
  await field(page).fill(text);
  await field(page).press("Enter");
};
const waitForAnswer = async (page: Page) => {
  await frame(page).locator(".pending").waitFor({ state: "detached" });
  return frame(page).locator(".stored .markdown").last().innerText();
};
const answerTo = async (page: Page, question: string) => {
  await ask(page, question);
  return await waitForAnswer(page);
};
const openWindow = async (page: Page) => {
  await button(page).click();
  await frame(page).getByText("Hello! 👋").waitFor();
};
const focused = (page: Page) =>
  page.evaluate(() => {
    const { activeElement } = document;
    return (activeElement?.shadowRoot?.activeElement ?? activeElement)?.localName;
  });

/** Checks the page and the widget's window with axe, each on its own. */
const expectAccessible = async (page: Page) => {
  for (const each of page.frames()) {
    const { violations } = await each.evaluate<axe.AxeResults>(
      `(() => { ${axe.source}; return axe.run({ reporter: "v2" }); })()`,
    );
    const problems = violations.map(({ id, nodes }) => `${id}: ${nodes[0]?.html}`);
    expect(problems, each.url()).toEqual([]);
  }
};

for (const [name, device] of Object.entries({
  "a desktop": desktop,
  "a dark desktop": { ...desktop, colorScheme: "dark" as const },
  "a phone": phone,
})) {
  it(`an anonymous visitor can ask in the widget on ${name}`, () =>
    visit(
      { attributes: 'data-color="#ffcc00"' },
      async (page) => {
        const countedRequests: Array<string> = [];
        page.on("request", (request) => {
          const { pathname } = new URL(request.url());
          if (request.headers()["x-api-key"])
            countedRequests.push(`${request.method()} ${pathname}`);
        });
        await openWindow(page);
        await frame(page).getByRole("button", { name: "Ports" }).waitFor();
        expect(await focused(page)).toBe("iframe");
        // A visitor who only looks leaves no chat.
        expect(countedRequests.filter((request) => !request.startsWith("GET"))).toEqual([]);
        await expectAccessible(page);
        const box = await page.locator("parley-widget dialog").boundingBox();
        if (name === "a phone") expect(box).toEqual({ x: 0, y: 0, ...phone.viewport });
        else expect(box).toMatchObject({ x: 860, width: 400 });
        await frame(page).getByRole("button", { name: "Ports" }).click();
        await frame(page).locator(".question:text-is('Ports')").waitFor();
        expect(await waitForAnswer(page)).toBe("A short answer.");
        // A visitor's rate limit may be as low as ten requests a minute.
        expect(countedRequests.length, countedRequests.join()).toBeLessThanOrEqual(5);
        await ask(page, "fail");
        await frame(page).getByText("Could not answer. Nothing was stored.").waitFor();
        await ask(page, "long");
        await frame(page).getByText("word3").waitFor();
        await frame(page).getByTitle("Stop").click();
        await frame(page).getByText("Stopped. Nothing was stored.").waitFor();
        await expectAccessible(page);
      },
      device,
    ));
}

it("the window fills the screen of a phone in landscape", () => {
  const viewport = { width: phone.viewport.height, height: phone.viewport.width };
  const use = async (page: Page) => {
    await openWindow(page);
    const box = await page.locator("parley-widget dialog").boundingBox();
    expect(box).toEqual({ x: 0, y: 0, ...viewport });
  };
  return visit({}, use, { ...phone, viewport });
});

it("a page can load the widget as a module, with a version in the address", () =>
  visit({ attributes: 'type="module"', version: "?v=2" }, async (page) => {
    await openWindow(page);
  }));

it("a cross-origin isolated page can contain the widget", () =>
  visit({ isolated: "yes" }, async (page) => {
    expect(await page.evaluate(() => crossOriginIsolated)).toBe(true);
    await openWindow(page);
    await answerTo(page, "hi");
  }));

it.each([
  ["oklch(0.95 0.05 100)", "rgb(0, 0, 0)"],
  ["oklch(0.3 0.05 260)", "rgb(255, 255, 255)"],
  ["no colour", "rgb(255, 255, 255)"],
])("the button's icon and the window's header are legible on %s", (color, expected) =>
  visit({ attributes: `data-color="${color}"` }, async (page) => {
    await openWindow(page);
    for (const element of [button(page), frame(page).locator("header")]) {
      expect(await element.evaluate((each) => getComputedStyle(each).color)).toBe(expected);
    }
  }),
);

it("Escape closes the window and restores the focus, and the page stays as it was", () =>
  visit({}, async (page) => {
    const before = await page.evaluate(() => document.body.outerHTML);
    expect(await page.evaluate("Object.keys(parley)")).toEqual(["open", "close", "ask", "destroy"]);
    await button(page).focus();
    await page.keyboard.press("Enter");
    await frame(page).getByText("Hello! 👋").waitFor();
    await field(page).press("Escape");
    await page.locator("parley-widget dialog").waitFor({ state: "hidden" });
    // The dialog is hidden before its close event.
    await expect.poll(() => button(page).getAttribute("aria-expanded")).toBe("false");
    expect(await focused(page)).toBe("button");
    await page.getByRole("button", { name: "Buy" }).focus();
    await page.evaluate("parley.open()");
    await ask(page, "long");
    await frame(page).getByText("word3").waitFor();
    // The first Escape stops the answer.
    await field(page).press("Escape");
    await frame(page).getByText("Stopped.").first().waitFor();
    expect(await page.locator("parley-widget dialog").isVisible()).toBe(true);
    await page.evaluate("parley.close()");
    expect(await page.evaluate(() => document.activeElement?.textContent)).toBe("Buy");
    expect(await page.evaluate(() => document.body.outerHTML)).toBe(before);
    expect(await page.evaluate(() => history.length)).toBeLessThanOrEqual(2);
  }));

const german = { name: sameSite, attributes: 'data-locale="de" data-position="left"' };
it("an answer continues after the visitor opens another page of the site", () =>
  visit(german, async (page) => {
    await button(page).click();
    await ask(page, "long");
    await frame(page).getByText("word3").waitFor();
    await page.goto(addressOf(german));
    await frame(page).getByText("Antwort wird geschrieben").waitFor();
    expect(await waitForAnswer(page)).toBe(long);
    await frame(page).getByTitle("Neuer Chat").click();
    await frame(page).locator(".question").waitFor({ state: "detached" });
    await frame(page).getByTitle("Frühere Chats").click();
    await expectAccessible(page);
    await frame(page).getByRole("button", { name: "long" }).click();
    await frame(page).locator(".question:text-is('long')").waitFor();
    expect((await button(page).boundingBox())!.x).toBe(20);
  }));

it("the widget answers even if the browser blocks storage in frames", () =>
  visit({}, async (page) => {
    await openWindow(page);
    for (const name of ["sessionStorage", "localStorage"])
      await expect(page.frames()[1]!.evaluate(name)).rejects.toThrow("SecurityError");
    expect(await answerTo(page, "Is it open?")).toBe("A short answer.");
  }));

const withTokenUrl = { name: sameSite, attributes: 'data-token-url="/chat-token"' };
it("a token that expires in the middle of an answer is renewed, and the answer continues", () =>
  visit(withTokenUrl, async (page) => {
    // The server tolerates a clock skew of 60 seconds.
    lives = [-57];
    tokens.length = 0;
    await openWindow(page);
    await ask(page, "long");
    await frame(page).getByText("word3").waitFor();
    await page.waitForTimeout(3500);
    for (const socket of connections) socket.destroy();
    expect(await waitForAnswer(page)).toBe(long);
    expect(tokens).toHaveLength(2);
  }));

it("a token is renewed before it expires", () =>
  visit(withTokenUrl, async (page) => {
    tokens.length = 0;
    const statuses: Array<number> = [];
    page.on("response", (response) => statuses.push(response.status()));
    await page.clock.install();
    await openWindow(page);
    await page.clock.fastForward("58:00");
    await answerTo(page, "Is it open?");
    expect(tokens).toHaveLength(1);
    await page.clock.fastForward("01:30");
    await answerTo(page, "Is it still open?");
    expect(tokens).toHaveLength(2);
    expect(statuses.filter((status) => status >= 400)).toEqual([]);
  }));

it("a user does not see what the browser's previous user wrote", () =>
  visit(withTokenUrl, async (page) => {
    user = "user-2";
    await button(page).click();
    await answerTo(page, "Whose is it?");
    await field(page).fill("A draft");
    user = "user-3";
    await page.goto(addressOf(withTokenUrl));
    await frame(page).getByText("Hello! 👋").waitFor();
    expect(await field(page).inputValue()).toBe("");
    expect(await frame(page).getByText("Whose is it?").count()).toBe(0);
    const storage = await page.frames()[1]!.evaluate("JSON.stringify({ ...sessionStorage })");
    expect(storage).not.toContain("A draft");
    user = null;
    await page.goto(addressOf(withTokenUrl));
    await frame(page).getByText("This chat is not available at the moment.").first().waitFor();
    user = "user-2";
    await frame(page).getByRole("button", { name: "Try again" }).first().click();
    await frame(page).getByText("Whose is it?").waitFor();
  }));

it("a page from an origin that is not allowed shows a sentence, and requests no token", () =>
  visit(
    { site: stranger },
    async (page, errors) => {
      const paths: Array<string> = [];
      page.on("request", (request) => paths.push(new URL(request.url()).pathname));
      await button(page).click();
      await page.getByText("This chat is not available at the moment.").waitFor();
      expect(paths).toEqual([`/widget/${id}`]);
      await page.getByRole("button", { name: "Close" }).click();
      expect(await focused(page)).toBe("button");
      expect(await page.locator("parley-widget dialog").isVisible()).toBe(false);
      // The browser tells the page's developer why.
      expect(errors.splice(0).join()).toContain("frame-ancestors");
    },
    phone,
  ));

it("the window wears the site's colour, logo, title, theme and place", () => {
  const attributes =
    'data-color="#7a1fa2" data-logo="/logo.svg" data-title="Ask Anna" data-theme="dark" data-offset="30 90"';
  return visit({ attributes, name: sameSite }, async (page) => {
    await button(page).click();
    await frame(page).getByRole("heading", { name: "Ask Anna" }).waitFor();
    const logo = frame(page).locator("header img");
    await expect
      .poll(() => logo.evaluate((image) => (image as HTMLImageElement).naturalWidth))
      .toBe(64);
    await expectAccessible(page);
    const body = frame(page).locator("body");
    expect(await body.evaluate((each) => getComputedStyle(each).backgroundColor)).toBe(
      "rgb(21, 24, 26)",
    );
    expect(await button(page).boundingBox()).toMatchObject({ x: 1280 - 30 - 56, y: 800 - 90 - 56 });
  });
});

it("the widget follows the page's language and direction with the owner's words", () => {
  const texts = { "Ask a question": "שאלו שאלה", "Close the chat": "סגירה" };
  const attributes = `data-texts='${JSON.stringify(texts)}'`;
  return visit({ attributes, lang: "he", dir: "rtl" }, async (page) => {
    await button(page).click();
    await frame(page).getByPlaceholder("שאלו שאלה").waitFor();
    await frame(page).getByTitle("סגירה").waitFor();
    const html = frame(page).locator("html");
    expect([await html.getAttribute("lang"), await html.getAttribute("dir")]).toEqual([
      "he",
      "rtl",
    ]);
    expect((await button(page).boundingBox())!.x).toBe(20);
  });
});

it("scripts of the page ask, hear of answers, and remove the widget", () =>
  visit({}, async (page) => {
    await page.evaluate(() => {
      const events: Array<string> = [];
      Object.assign(window, { events });
      for (const name of ["open", "close", "question", "answer"])
        addEventListener(`parley:${name}`, (event) => {
          events.push(`${name} ${Object.keys((event as CustomEvent).detail ?? {})}`.trim());
        });
    });
    await page.evaluate("parley.ask('Is it open?')");
    await frame(page).locator(".question:text-is('Is it open?')").waitFor();
    expect(await waitForAnswer(page)).toBe("A short answer.");
    await page.evaluate("parley.close()");
    await expect
      .poll(() => page.evaluate("events"))
      .toEqual(["open", "question", "answer chatId,entryId", "close"]);
    await page.evaluate("parley.destroy()");
    expect(await page.locator("parley-widget").count()).toBe(0);
    expect(await page.evaluate("typeof parley")).toBe("undefined");
  }));

it("calls before the script has loaded run once it has", () =>
  visit({}, async (page) => {
    await page.addInitScript('globalThis.parley = { calls: [["ask", "Early?"]] }');
    await page.reload();
    await frame(page).locator(".question:text-is('Early?')").waitFor();
    await waitForAnswer(page);
  }));

/** What the widget has told the page's developer. */
const warningsOf = (page: Page): ReadonlyArray<string> => {
  const warnings: Array<string> = [];
  page.on("console", (message) => {
    if (message.text().startsWith("Parley widget")) warnings.push(message.text());
  });
  return warnings;
};

it.each<readonly [string, () => HostPage, string]>([
  [
    "the key is unknown",
    () => ({ attributes: 'data-key="000000000000"' }),
    "is not among its origins",
  ],
  ["the origin is not the key's", () => ({ site: stranger }), "is not among its origins"],
  ["a whole key was pasted", () => ({ attributes: `data-key="${key}"` }), "whole API key"],
  ["frame-src is missing", () => ({ frameless: "yes" }), "to frame-src"],
  ["data-key is missing", () => ({ attributes: 'data-key=""' }), "data-key is missing"],
])("one warning says why the window does not open: %s", (_, cause, sentence) =>
  visit(cause(), async (page, errors) => {
    const warnings = warningsOf(page);
    await page.clock.install();
    await button(page).click();
    await page.getByText("This chat is not available at the moment.").waitFor();
    await page.clock.fastForward(4500);
    await expect.poll(() => warnings).toEqual([expect.stringContaining(sentence)]);
    await page.clock.fastForward(4500);
    expect(warnings).toHaveLength(1);
    errors.splice(0);
  }),
);

it("the key may stand in the script's address", () =>
  visit({ attributes: 'data-key=""', version: `?key=${id}` }, async (page) => {
    await openWindow(page);
  }));

it("an open window, its chat and the draft survive a page change, and a closed one marks an answer", () =>
  visit({ name: sameSite }, async (page) => {
    await button(page).click();
    await answerTo(page, "Is it open?");
    await frame(page).getByTitle("New chat").click();
    await field(page).fill("A draft");
    await page.goto(addressOf({ name: sameSite }));
    await frame(page).getByText("Hello! 👋").waitFor();
    await expect.poll(() => field(page).inputValue()).toBe("A draft");
    expect(await focused(page)).toBe("body");
    await ask(page, "long");
    await frame(page).getByText("word3").waitFor();
    await page.evaluate("parley.close(); location.reload()");
    await page.locator("parley-widget .unread").waitFor();
    expect(await page.locator("parley-widget dialog").isVisible()).toBe(false);
    const label = () => button(page).getAttribute("aria-label");
    await expect.poll(label).toBe("Chat: New answer");
    await page.goto(addressOf({ name: sameSite }));
    await page.locator("parley-widget .unread").click();
    await expect.poll(label).toBe("Chat");
    await frame(page).getByText("It ends.").waitFor();
  }));

const section = 'document.querySelector("parley-widget").shadowRoot.querySelector("section")';
const click = `${section}.querySelector("section > button").click()`;
const escape = `${section}.dispatchEvent(new KeyboardEvent("keydown", { key: "Escape" }))`;
it.each([
  ["a script closes the window", "parley.close()", false],
  ["a click closes the window", click, false],
  ["Escape closes the window", escape, false],
  ["a script removes the widget", "parley.destroy()", false],
  ["a script closes the window and removes the widget", "parley.close(); parley.destroy()", false],
  ["a script opens the window", "parley.open()", true],
  ["a click opens the window", click, true],
])("what happens just before a page change holds on the next page: %s", (_, act, willBeOpen) =>
  visit({ name: sameSite }, async (page) => {
    await button(page).waitFor();
    if (!willBeOpen) await page.evaluate("parley.open()");
    const loaded = page.waitForEvent("load");
    await page.evaluate(`addEventListener("pagehide", () => { ${act} }); location.reload()`);
    await loaded;
    await button(page).waitFor();
    expect(await page.locator("parley-widget dialog").isVisible()).toBe(willBeOpen);
  }),
);

it("a second tab opens with its window closed, shows the same chat, and shares the mark of an answer", () =>
  visit({ name: sameSite }, async (page) => {
    await button(page).click();
    await answerTo(page, "Is it open?");
    const second = await page.context().newPage();
    await second.goto(addressOf({ name: sameSite }));
    await button(second).waitFor();
    expect(await second.locator("parley-widget dialog").isVisible()).toBe(false);
    await button(second).click();
    await frame(second).locator(".question:text-is('Is it open?')").waitFor();
    await answerTo(second, "And tomorrow?");
    await frame(page).locator(".stored .question:text-is('And tomorrow?')").waitFor();
    await ask(second, "long");
    await frame(second).getByText("word3").waitFor();
    for (const tab of [page, second]) await tab.evaluate("parley.close()");
    for (const tab of [page, second]) await tab.locator("parley-widget .unread").waitFor();
    await button(page).click();
    await second.locator("parley-widget .unread").waitFor({ state: "detached" });
    await frame(page).getByText("It ends.").waitFor();
    expect(await page.locator("parley-widget .unread").count()).toBe(0);
    // A tab that opens later agrees, too.
    await second.reload();
    await button(second).waitFor();
    expect(await second.locator("parley-widget .unread").count()).toBe(0);
  }));

it("the widget says nothing after a script has removed it", () =>
  visit({ site: stranger }, async (page, errors) => {
    const warnings = warningsOf(page);
    await page.clock.install();
    await button(page).click();
    await page.getByText("Loading the chat…").waitFor();
    // The widget waits for the window once the frame has loaded, which no clock hastens.
    await page.waitForTimeout(500);
    await page.evaluate("parley.destroy()");
    await page.clock.fastForward(4500);
    expect(warnings).toEqual([]);
    errors.splice(0);
  }));

it.each([
  ["en", "RATE_EXCEEDED", 75, "Too many requests. Try again in 75 seconds."],
  ["en", "RATE_EXCEEDED", 3590, "Too many requests. Try again at 14:05."],
  ["de", "RATE_EXCEEDED", 3590, "Zu viele Anfragen. Versuchen Sie es um 14:05 Uhr erneut."],
  ["en", "BUDGET_SPENT", 43_200, "No more questions can be answered for now. Try again tomorrow."],
  [
    "de",
    "BUDGET_SPENT",
    43_200,
    "Dieser Chat beantwortet vorerst keine Fragen mehr. Versuchen Sie es morgen erneut.",
  ],
])(
  "in %s, the window says until when %s lasts for %i seconds",
  (lang, message, seconds, sentence) =>
    visit(
      { lang },
      async (page) => {
        await page.clock.install({ time: "2026-11-29T12:05:00Z" });
        const headers = { "retry-after": String(seconds) };
        await page.route(/ask/, (route) =>
          route.fulfill({ status: 403, headers, json: { status: 403, code: 99, message } }),
        );
        await button(page).click();
        await ask(page, "Is it open?");
        const alert = frame(page).getByRole("alert").getByRole("paragraph").first();
        expect(await alert.innerText()).toBe(sentence);
        await page.clock.fastForward(600_000);
        await field(page).fill("Another rendering");
        expect(await alert.innerText()).toBe(sentence);
      },
      { timezoneId: "Europe/Berlin" },
    ),
);

it("a language that browsers do not know stops nothing", () =>
  visit({ lang: "de_DE.utf8", attributes: `data-texts='{ "New chat": "Neu" }'` }, async (page) => {
    await button(page).click();
    await answerTo(page, "Is it open?");
    await frame(page).getByTitle("Earlier chats").click();
    await frame(page).locator("nav time").waitFor();
  }));

it("an answer for which nothing was found leads to the owner's contact, but never to a script", async () => {
  // Without a model, documents answer.
  const other = await launchShop([key], [shop.originOf()], { PARLEY_PAGES: "false" });
  try {
    const contacts = ["https://shop.example/contact", "mailto:a@shop.example", "tel:+49301234567"];
    for (const contact of [...contacts, "javascript:alert(1)"]) {
      const attributes = `data-contact="${contact}"`;
      await visit({ server: other.origin, attributes, lang: "de" }, async (page) => {
        await button(page).click();
        await answerTo(page, "Xyzzy?");
        const links = await frame(page).getByRole("link", { name: "Kontakt aufnehmen" }).all();
        const addresses = await Promise.all(links.map((link) => link.getAttribute("href")));
        expect(addresses).toEqual(contacts.includes(contact) ? [contact] : []);
      });
    }
  } finally {
    await other.stop();
  }
});

it("a visitor deletes their chats if the key allows it", () =>
  visit({}, async (page) => {
    await button(page).click();
    await answerTo(page, "Is it open?");
    await frame(page).getByTitle("Earlier chats").click();
    await frame(page).getByRole("button", { name: "Delete my chats" }).click();
    await expectAccessible(page);
    await frame(page).getByRole("button", { name: "Delete", exact: true }).click();
    await frame(page).getByRole("button", { name: "Ports" }).waitFor();
    await frame(page).getByTitle("Earlier chats").click();
    expect(await frame(page).locator("nav li").count()).toBe(0);
  }));
