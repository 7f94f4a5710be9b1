import { execFile } from "node:child_process";
import { promisify } from "node:util";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, expect, it } from "vitest";
import { launch, type TestServer } from "../apps/server/test/contract/launch.ts";
import { desktop, expectAccessible, launchBrowser, phone } from "./playground/Browsers.ts";

let browser: Browser;
let server: TestServer;
beforeAll(async () => {
  server = await launch("memory");
  browser = await launchBrowser("--host-resolver-rules=MAP example.com 127.0.0.1");
});
afterAll(async () => {
  await browser?.close();
  await server?.stop();
});

/** Opens the API reference at the host name with a key. */
const open = async (name: string, use: (page: Page, urls: ReadonlyArray<string>) => unknown) => {
  const context = await browser.newContext(desktop);
  const page = await context.newPage();
  const urls: Array<string> = [];
  page.on("request", (request) => urls.push(request.url()));
  const { key, origin } = server.target;
  await page.addInitScript((value) => sessionStorage.setItem("parley-key", value), key);
  await page.goto(`http://${name}:${new URL(origin).port}/docs`);
  await page.locator(".trial").first().waitFor();
  await use(page, urls);
  await context.close();
};

/** Part of the response to the samples of operations, in an order in which each sample finds what it refers to. */
const samples = {
  "general.details": "chatBotName",
  "general.createChat": '"First chat"',
  "general.listChats": '"total"',
  "general.history": "Hello!",
  "general.changeChat": '"Another name"',
  "answers.ask": '"answer"',
};

// The page treats a server with a public name differently from one on this machine.
it.each(["example.com", "localhost"])(
  "at %s, the API reference shows the operations, sends their samples unchanged, and loads nothing from other hosts",
  (name) =>
    open(name, async (page, urls) => {
      expect(await page.title()).toBe("API · Parley");
      const { origin } = new URL(page.url());
      const formOf = (operationId: string) =>
        page
          .locator(".operation", { has: page.locator(`[id="${operationId}"]`) })
          .locator(".trial");
      const responseTo = async (operationId: string, status: RegExp) => {
        const form = formOf(operationId);
        await form.locator("button").first().click();
        await form.getByText(status).waitFor();
        return form.locator("code").first().innerText();
      };
      for (const [operationId, part] of Object.entries(samples))
        expect(await responseTo(operationId, /Status 20[01]/)).toContain(part);
      // The form sends the header that this operation requires.
      await formOf("answers.stopAsk").locator('[name="Idempotency-Key"]').fill("key-1");
      const response = await responseTo("answers.stopAsk", /Status 404/);
      expect(response).toContain("ASK_DOES_NOT_EXIST");
      await page.setViewportSize(phone.viewport);
      await expectAccessible(page, "the reference");
      expect(urls).toContain(`${origin}/api/details`);
      // A link may connect to a host without a request.
      const links = page.locator("link").evaluateAll((all) => all.map((link: any) => link.href));
      const isElsewhere = (url: string) =>
        !/^(data|blob):/.test(url) && new URL(url).origin !== origin;
      expect([...urls, ...(await links)].filter(isElsewhere)).toEqual([]);
    }),
);

it.each(["curl", "JavaScript"])(
  "the reference's samples in %s run as printed",
  async (language) => {
    let samplesOfPage: Record<string, string> = {};
    let origin = "";
    await open("localhost", async (page) => {
      ({ origin } = new URL(page.url()));
      samplesOfPage = await page.evaluate(`Object.fromEntries(
      [...document.querySelectorAll(".operation")].map((operation) => [
        operation.querySelector("h2").id,
        [...operation.querySelectorAll(".code")]
          .find(({ innerText }) => innerText.startsWith("${language}"))
          .querySelector("code").textContent,
      ]))`);
    });
    // The samples refer to the first chat, and to its first entry.
    const fresh = await launch("memory");
    try {
      const statuses: Record<string, number> = {};
      const [first, last] = ["general.createChat", "general.deleteChat"] as const;
      const others = Object.keys(samplesOfPage).filter((name) => name !== first && name !== last);
      for (const name of [first, ...others, last]) {
        const code = samplesOfPage[name]!.replace(origin, fresh.target.origin);
        const script = `${code} console.log(response.status)`;
        const [command, ...values] =
          language === "curl"
            ? (["sh", "-c", `${code} -w ' %{http_code}'`] as const)
            : ([process.execPath, "--input-type=module", "-e", script] as const);
        const env = { ...process.env, KEY: fresh.target.fullKey };
        const { stdout } = await promisify(execFile)(command, values, { env });
        statuses[name] = Number(/\d+$/.exec(stdout.trim())?.[0]);
      }
      expect(statuses).toEqual({
        "general.details": 200,
        "general.createChat": 201,
        "general.listChats": 200,
        "general.changeChat": 200,
        "general.deleteChat": 200,
        "general.history": 200,
        "general.changeEntry": 200,
        "general.postEntry": 201,
        "answers.ask": 201,
        // Nothing has been asked with the key of the sample.
        "answers.stopAsk": 404,
      });
    } finally {
      await fresh.stop();
    }
  },
);
