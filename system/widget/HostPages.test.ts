/**
 * The widget in Chromium on pages whose styles, scripts and policies are in its way.
 */
import { keyId } from "@parley/core";
import { setTimeout as sleep } from "node:timers/promises";
import type { Browser } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { makeKeys } from "../../test/keys.ts";
import { desktop, launchBrowser } from "../playground/Browsers.ts";
import { launchShop, startSite, type Shop, type Site } from "./Shop.ts";

interface HostPage {
  readonly style?: string;
  /** HTML in front of the widget's script. */
  readonly head?: string;
  readonly body?: string;
  /** Attributes of the root element. */
  readonly html?: string;
  readonly doctype?: string;
  readonly policy?: (origin: string) => string;
  /** Attributes of the frame that shows the page. */
  readonly frame?: string;
}

const hostPages: Readonly<Record<string, HostPage>> = {
  "undoes the style of everything": { style: "* { all: unset !important }" },
  "hides each element of the kinds that the widget uses": {
    style: `parley-widget, html > :not(head, body), section, dialog, iframe, button, svg, path, p {
      display: none !important; visibility: hidden !important; opacity: 0 !important; pointer-events: none !important }`,
  },
  "transforms, filters and contains its root": {
    style: `html, body { transform: scale(1); filter: grayscale(1); perspective: 1px; will-change: transform; contain: layout }`,
  },
  "hides what overflows": { style: "html, body { overflow: hidden; height: 50px }" },
  "has small letters": { style: "html { font-size: 62.5% } * { font-size: 1px; line-height: 0 }" },
  "lays out its root as a row": { style: "html { display: flex; gap: 50px }" },
  "is twice as wide as the window": { style: "body { width: 200%; margin-inline-start: -50% }" },
  "covers itself with the greatest z-index": {
    style: "body, div { position: fixed; inset: 0; z-index: 2147483647 }",
  },
  "reads from right to left": { html: 'dir="rtl" lang="ar"' },
  "is dark": { head: '<meta name="color-scheme" content="dark">' },
  "has no doctype": { doctype: "" },
  "allows nothing but the widget": {
    policy: (origin) =>
      `default-src 'none'; script-src ${origin}; frame-src ${origin}; require-trusted-types-for 'script'; trusted-types 'none'`,
  },
  "is sandboxed": { policy: () => "sandbox allow-scripts allow-same-origin" },
  "is in a sandboxed frame": { frame: 'sandbox="allow-scripts allow-same-origin"' },
  "has another base address": { head: '<base href="https://elsewhere.example/deep/">' },
  "waits for a slow script": { body: '<script src="/slow.js"></script>' },
  "extends prototypes": {
    head: `<script>
      for (const type of [Object, Array, String, Function])
        type.prototype.each = type.prototype.extend = function () {};
      for (const type of [Array, String, Number])
        type.prototype.toJSON = function () { return "[]" };
    </script>`,
  },
  "has a parley of its own": {
    head: "<script>var parley = { version: 7 }</script>",
    body: '<script>addEventListener("click", () => parley.version.toFixed())</script>',
  },
  "has a constant parley": { head: "<script>const parley = 7</script>" },
  "has a parley that nobody can change": {
    head: '<script>Object.defineProperty(window, "parley", { value: () => 7 })</script>',
  },
  "has an element named parley": { body: '<a id="parley" name="calls">calls</a>' },
  "keeps its body in a shadow": {
    body: '<script>document.body.attachShadow({ mode: "closed" }).innerHTML = "<h1>Shadow</h1>"</script>',
  },
  "replaces its body": {
    body: `<script>addEventListener("load", () => setTimeout(() => {
      document.body.replaceWith(document.createElement("body"));
      document.body.innerHTML = "<h1>Another view</h1>";
    }, 100))</script>`,
  },
};

let browser: Browser;
let shop: Shop;
let site: Site;
/** A key for each page, because a key admits only ten new visitors a minute from one address. */
let keys: ReadonlyArray<string>;

const addressOf = (name: string) => `${site.originOf()}/?${encodeURIComponent(name)}`;

const render = (name: string) => {
  const { body = "", doctype = "<!doctype html>", head = "", html = "", style } = hostPages[name]!;
  const sheet = style && `<link rel="stylesheet" href="/style.css?${encodeURIComponent(style)}">`;
  const key = keys[Object.keys(hostPages).indexOf(name)]!;
  // There is no title: `* { all: unset }` would show it, and Chromium may paint it first and then shift the rest.
  return `${doctype}<html ${html}><head>${sheet ?? ""}${head}
<script src="${shop.origin}/widget.js" data-key="${keyId(key)}" async></script></head>
<body><h1>Host</h1><div></div>${body}<p>${"Many words. ".repeat(2000)}</p></body></html>`;
};

beforeAll(async () => {
  keys = await makeKeys(Object.keys(hostPages).length);
  site = await startSite(async (request, response) => {
    const { pathname, search } = new URL(request.url!, "http://localhost");
    const text = decodeURIComponent(search.slice(1));
    const send = (type: string, content: string) =>
      void response.setHeader("content-type", type).end(content);
    if (pathname === "/style.css") return send("text/css", text);
    if (pathname === "/slow.js") {
      await sleep(1500);
      return send("text/javascript", "");
    }
    const [name, isFramed] = text.split("#");
    const page = hostPages[name!];
    if (page === undefined) return void response.writeHead(404).end();
    if (page.policy) response.setHeader("content-security-policy", page.policy(shop.origin));
    const isWhole = page.frame === undefined || isFramed;
    send(
      "text/html; charset=utf-8",
      isWhole
        ? render(name!)
        : `<!doctype html><iframe ${page.frame} width="1000" height="700" src="${addressOf(`${name}#framed`)}"></iframe>`,
    );
  });
  shop = await launchShop(keys, [site.originOf()], { PARLEY_PAGES: "false" });
  browser = await launchBrowser();
});
afterAll(async () => {
  await browser?.close();
  await shop?.stop();
  site?.close();
});

it.each(Object.keys(hostPages))(
  "the widget is visible, opens, answers and moves nothing on a page that %s",
  async (name) => {
    const context = await browser.newContext(desktop);
    try {
      const page = await context.newPage();
      const errors: Array<string> = [];
      page.on("pageerror", ({ message }) => errors.push(message));
      await page.addInitScript(() => {
        new PerformanceObserver((list) => {
          for (const entry of list.getEntries())
            Object.assign(window, { shift: JSON.stringify(entry) });
        }).observe({ type: "layout-shift", buffered: true });
      });
      await page.goto(addressOf(name));
      const host = hostPages[name]!.frame === undefined ? page.mainFrame() : page.frames()[1]!;
      const button = host.locator("parley-widget section > button");
      await button.waitFor();
      await page.waitForTimeout(300);
      const { height, width, x, y } = (await button.boundingBox())!;
      const area = hostPages[name]!.frame ? { width: 1000, height: 700 } : desktop.viewport;
      expect([width, height]).toEqual([56, 56]);
      expect([x, y].every((start) => start > 0)).toBe(true);
      expect(x + width, "right edge").toBeLessThan(area.width + 10);
      expect(y + height, "bottom edge").toBeLessThan(area.height + 10);
      // A click of the mouse meets whatever is on top.
      await page.mouse.click(x + 28, y + 28);
      const window = host.frameLocator("parley-widget iframe");
      await window.getByText("Hello!").waitFor();
      const dialog = (await host.locator("parley-widget dialog").boundingBox())!;
      expect(dialog).toMatchObject({ width: 400 });
      expect(dialog.y).toBeGreaterThan(0);
      await window.getByRole("textbox").fill("Ports");
      await window.getByRole("button", { name: "Ask" }).click();
      await window.locator(".stored .question").waitFor();
      await window.locator(".pending").waitFor({ state: "detached" });
      await page.emulateMedia({ media: "print" });
      expect(await button.isVisible()).toBe(false);
      expect(await host.evaluate("globalThis.shift")).toBeUndefined();
      const layout = () => host.evaluate("JSON.stringify(document.body.getBoundingClientRect())");
      const before = await layout();
      await host.evaluate('document.querySelector("parley-widget").remove()');
      expect(await layout()).toBe(before);
      expect(errors).toEqual([]);
    } finally {
      await context.close();
    }
  },
);
