/**
 * The essentials of the pages in Firefox.
 */
import { keyId } from "@parley/core";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { makeKeys } from "../../test/keys.ts";
import { startSlowModel, type SlowModel } from "../playground/SlowModel.ts";
import { launchShop, startSite, type Shop, type Site } from "../widget/Shop.ts";
import { hasFirefox, startFirefox, type Firefox } from "./Firefox.ts";

if (!hasFirefox)
  console.warn("SKIPPED: the pages in Firefox, because firefox-esr is not installed");

const answer = '```js\nconst one = "1" + 1; // one\n```\n\nIt **ends**.';
const all = (selector: string) => `document.querySelectorAll(${JSON.stringify(selector)})`;
const first = (selector: string) => `document.querySelector(${JSON.stringify(selector)})`;

describe.skipIf(!hasFirefox)("in Firefox", () => {
  let firefox: Firefox;
  let model: SlowModel;
  let shop: Shop;
  let site: Site;
  let key: string;

  beforeAll(async () => {
    [key] = (await makeKeys(1)) as [string];
    site = await startSite((_, response) => {
      const { origin } = shop;
      response.writeHead(200, {
        "content-type": "text/html; charset=utf-8",
        "content-security-policy": `default-src 'none'; script-src ${origin}; frame-src ${origin}; style-src 'unsafe-inline'; img-src 'self'`,
      });
      response.end(`<!doctype html><html lang="de"><title>Laden</title>
<style>* { all: unset !important } html { transform: scale(1) !important }</style>
<script src="${origin}/widget.js" data-key="${keyId(key)}" data-color="#7a1fa2" async></script>
<h1>Laden</h1><p>${"Viele Wörter. ".repeat(2000)}</p>`);
    });
    model = await startSlowModel(() => answer);
    shop = await launchShop([key], [site.originOf()], model.settings);
    firefox = await startFirefox();
  });
  afterAll(async () => {
    await firefox?.stop();
    await shop?.stop();
    model?.close();
    site?.close();
  });

  it("the playground asks, shows a coloured answer as it arrives, and finds it again after a reload", async () => {
    await firefox.goto(`${shop.origin}/#key=${key}`);
    await firefox.waitFor(first("textarea"));
    await firefox.click(first("textarea"));
    await firefox.type("How?\uE007");
    await firefox.waitFor(`${all(".stored .question")}.length === 1`);
    expect(await firefox.evaluate(`${first(".stored pre")}.innerText.trim()`)).toBe(
      'const one = "1" + 1; // one',
    );
    const kinds = "[...CSS.highlights].map(([kind, { size }]) => `${size} ${kind}`)";
    await firefox.waitFor(`${kinds}.length > 0`);
    expect(await firefox.evaluate(kinds)).toEqual([
      "1 keyword",
      "1 string",
      "1 number",
      "1 comment",
    ]);
    await firefox.evaluate("location.reload()");
    await firefox.waitFor(`${first(".chats .name")}?.innerText === "How?"`);
    await firefox.waitFor(`${all(".stored .question")}.length === 1`);
    expect(firefox.errors).toEqual([]);
  });

  it("the guide and the reference are there, with colours and copy buttons", async () => {
    await firefox.goto(`${shop.origin}/docs/install`);
    await firefox.waitFor(`${all(".code button")}.length > 3 && CSS.highlights.size > 0`);
    await firefox.goto(`${shop.origin}/docs`);
    await firefox.waitFor(`${all(".trial")}.length > 5 && CSS.highlights.size > 0`);
    const overflow = "document.documentElement.scrollWidth - document.documentElement.clientWidth";
    expect(await firefox.evaluate(overflow)).toBe(0);
    expect(firefox.errors).toEqual([]);
  });

  it("the widget opens on a hostile page, and answers", async () => {
    await firefox.goto(`${site.originOf()}/`);
    const root = `${first("parley-widget")}?.shadowRoot`;
    const button = `${root}?.querySelector("section > button")`;
    await firefox.waitFor(button);
    const { bottom } = await firefox.evaluate(`${button}.getBoundingClientRect().toJSON()`);
    expect(bottom).toBe(780);
    await firefox.click(button);
    await firefox.waitFor(`document.body.innerText.includes("Hello!")`, true);
    await firefox.click(first("textarea"), true);
    await firefox.type("Wie?\uE007", true);
    await firefox.waitFor(`${all(".stored .question")}.length === 1`, true);
    expect(await firefox.evaluate(`${first(".stored pre")}.innerText.trim()`, true)).toBe(
      'const one = "1" + 1; // one',
    );
    // What only a screen reader reads makes the window no longer.
    const overflow = "document.documentElement.scrollHeight - innerHeight";
    expect(await firefox.evaluate(overflow, true)).toBe(0);
    await firefox.click(button);
    expect(await firefox.evaluate(`${root}.querySelector("dialog").open`)).toBe(false);
    expect(firefox.errors).toEqual([]);
  });
});
