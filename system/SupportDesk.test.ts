/**
 * The support desk of the examples in Chromium, with a model that calls its tool. Its packages are not part of the
 * workspace.
 */
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { rolldown } from "rolldown";
import { expect, it } from "vitest";
import { start } from "../apps/server/test/cli/run.ts";
import { startEndpoint } from "../apps/server/test/TestModel.ts";
import { launchBrowser } from "./playground/Browsers.ts";
import { requirePackages } from "./programs/requirePackages.ts";

const folder = requirePackages("examples/support-desk");

/** The last messages that the model has read. */
const questions = new Set<string>();

/**
 * A model that asks the tool for the order in the question, and then says what the tool returned. It fails at the first
 * question about a failure, and does not end its first answer to "Does this take longer?".
 */
const respond: Parameters<typeof startEndpoint>[0] = ({ body }, response) => {
  const last = JSON.parse(body).messages.at(-1);
  const isFirst = !questions.has(last.content);
  questions.add(last.content);
  if (isFirst && last.content === "Does this fail?") response.writeHead(400).end("{}");
  if (response.writableEnded) return;
  const number = Number(/order (\d+)/.exec(last.content)?.[1]);
  const call = { name: "order", arguments: JSON.stringify({ number }) };
  const delta =
    last.role === "user" && number > 0
      ? { tool_calls: [{ index: 0, id: "1", type: "function", function: call }] }
      : { content: `**Answer:** ${last.role === "tool" ? last.content : last.content.length}` };
  response.writeHead(200, { "content-type": "text/event-stream" });
  const finish_reason = "content" in delta ? "stop" : "tool_calls";
  for (const choice of [
    { index: 0, delta },
    { index: 0, delta: {}, finish_reason },
  ])
    response.write(
      `data: ${JSON.stringify({ id: "1", created: 1, model: "m", choices: [choice] })}\n\n`,
    );
  if (!isFirst || last.content !== "Does this take longer?") response.end("data: [DONE]\n\n");
};

it("the support desk's server has at most 150 lines", async () => {
  const source = await readFile(join(folder, "server.ts"), "utf8");
  expect(source.trimEnd().split("\n").length).toBeLessThanOrEqual(150);
});

it("the support desk answers a user with a tool that acts for that user, shows Markdown, sources and a colleague's answer, and keeps ratings and failed questions", async () => {
  const build = await rolldown({
    input: join(folder, "page.tsx"),
    platform: "browser",
    // React's packages have directives for bundlers of servers.
    logLevel: "silent",
    tsconfig: false,
    transform: { define: { "process.env.NODE_ENV": '"production"' } },
  });
  await build.write({ file: join(folder, "dist/page.js"), format: "es" });
  await build.close();
  const html =
    '<!doctype html><html lang="en"><title>Desk</title><body><script type="module" src="/page.js"></script>';
  await writeFile(join(folder, "dist/index.html"), html);

  const model = await startEndpoint(respond);
  const settings = { MODEL_URL: `${model.url}/v1`, PORT: "0" };
  const server = start([join(folder, "server.ts")], settings, [process.execPath]);
  const browser = await launchBrowser();
  const errors: Array<string> = [];
  try {
    const [, port] = await server.untilPrinted(/port: (\d+)/);
    const origin = `http://127.0.0.1:${port}`;
    const open = async (user: string) => {
      const page = await (await browser.newContext()).newPage();
      page.on("pageerror", (error) => errors.push(String(error)));
      await page.goto(`${origin}/?user=${user}`);
      return page;
    };
    const [ann, bob] = [await open("ann"), await open("bob")];
    const ask = async (page: typeof ann, question: string) => {
      await page.getByLabel("Your question").fill(question);
      await page.getByRole("button", { name: "Send" }).click();
    };
    await ask(ann, "Where is order 17?");
    await ann.getByText("Answer: was sent on Monday").waitFor();
    await ask(bob, "Where is order 17? When is its delivery?");
    await bob.getByText("Answer: There is no such order.").waitFor();
    expect(await bob.getByRole("link").allTextContents()).toEqual(["Returns", "Delivery"]);
    const long = `${"x".repeat(4_990)} returns?`;
    await ask(ann, long);
    await ann.getByText(`Answer: ${long.length}`).waitFor();
    expect(await ann.getByRole("link").getAttribute("href")).toBe("/help/returns");

    for (const question of ["Does this fail?", "Does this take longer?"]) {
      await ask(bob, question);
      const answer = bob.locator("li.assistant", { hasText: `Answer: ${question.length}` });
      if (question === "Does this take longer?") {
        await answer.waitFor();
        expect(await bob.getByRole("button", { name: "Send" }).isDisabled()).toBe(true);
        await bob.getByRole("button", { name: "Stop" }).click();
      }
      await bob.getByRole("button", { name: "Ask again" }).click();
      await answer.getByRole("button", { name: "Not helpful" }).waitFor();
      expect(await answer.locator("strong").innerText()).toBe("Answer:");
      expect(await bob.getByText(question).count()).toBe(1);
    }

    const carl = await open("carl");
    await carl.getByLabel("Answer ann").fill("It is at your neighbour's.");
    await carl.locator("section", { hasText: "ann" }).getByRole("button", { name: "Send" }).click();
    await ann.getByText("It is at your neighbour's.").waitFor();
    expect(await ann.locator("cite").allTextContents()).toEqual(["Carl"]);

    await ann.getByRole("button", { name: "Not helpful" }).first().click();
    await ann.locator("[aria-pressed=true]").waitFor();
    await ann.reload();
    await ann.locator("[aria-pressed=true]", { hasText: "Not helpful" }).waitFor();
    expect(await ann.locator("li.assistant").count()).toBe(3);
    expect((await fetch(`${origin}/api/chats`)).status).toBe(401);
    expect((await ann.request.get(`${origin}/desk`)).status()).toBe(403);
  } catch (error) {
    throw new Error(`${errors.join()} ${server.output.stderr}`, { cause: error });
  } finally {
    await browser.close();
    server.child.kill("SIGTERM");
    model.close();
  }
  await server.exit;
}, 120_000);
