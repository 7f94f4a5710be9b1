import { openParley } from "@parley/core/promise";
import { sqlite } from "@parley/store-sqlite";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, expect, it } from "vitest";

const folder = mkdtempSync(join(tmpdir(), "service-"));
afterAll(() => rmSync(folder, { recursive: true }));

const start = async () => {
  const parley = await openParley({
    store: sqlite(join(folder, "chats.db")),
    answerer: () => "Yes.",
  });
  return { parley, bot: await parley.chatbot({ workspace: "Acme", name: "Helpdesk" }) };
};

it("chats survive a restart", async () => {
  const before = await start();
  const { entry } = await before.bot.ask(null, "Are you there?");
  await before.parley.close();

  const after = await start();
  expect((await after.bot.history(entry.chatId).page()).data).toEqual([entry]);
  await after.parley.close();
});
