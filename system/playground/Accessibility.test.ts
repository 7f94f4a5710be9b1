import { it } from "vitest";
import { desktop, expectAccessible, phone } from "./Browsers.ts";
import { ask, openNewChat, server, visit, waitForAnswer } from "./PlaygroundUnderTest.ts";

it.each([
  ["light", "desktop", desktop],
  ["dark", "phone", phone],
] as const)(
  "every view of the playground in %s mode on a %s is accessible",
  (colorScheme, _, device) =>
    visit(
      async (page) => {
        await expectAccessible(page, "key");
        await page.getByLabel("API key").fill("wrong");
        await page.getByLabel("API key").press("Enter");
        await page.getByRole("alert").waitFor();
        await expectAccessible(page, "wrong key");
        await page.getByLabel("API key").fill(server.target.key);
        await page.getByLabel("API key").press("Enter");
        await page.getByRole("button", { name: "Ports" }).waitFor();
        await expectAccessible(page, "first sight");
        await page.getByText("With a name").click();
        await expectAccessible(page, "new chat");
        await page.evaluate(() => (location.hash = "chats"));
        await page.waitForSelector(".chats li");
        await expectAccessible(page, "list");
        await page.getByRole("button", { name: "Requests" }).click();
        await expectAccessible(page, "requests");
        await page.getByRole("button", { name: "Close" }).click();
        await openNewChat(page);
        await ask(page, "weapon");
        await page.getByText("Flagged: violence").waitFor();
        await ask(page, "languages");
        await waitForAnswer(page);
        await ask(page, "table");
        await waitForAnswer(page);
        await ask(page, "code");
        await waitForAnswer(page);
        await page.getByTitle("Details").last().click();
        await expectAccessible(page, "answers");
        await ask(page, "endless");
        await page.waitForSelector(".streaming :text('word3')");
        await expectAccessible(page, "answering");
        await page.getByRole("button", { name: "Stop" }).click();
        await page.locator(".cancelled").waitFor();
        await expectAccessible(page, "stopped");
        await ask(page, "fail");
        await page.waitForSelector(".failure");
        await page.locator(".failure").getByText("Details").click();
        await expectAccessible(page, "failed");
        await ask(page, "x".repeat(201));
        await page.locator(".composer [role=alert]").waitFor();
        await expectAccessible(page, "too long a question");
      },
      { ...device, colorScheme },
      "",
    ),
);
