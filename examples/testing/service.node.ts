import { openParley } from "@parley/core/promise";
import { memory } from "@parley/store-memory";
import assert from "node:assert/strict";
import { after, test } from "node:test";

const parley = await openParley({ store: memory(), answerer: () => "Yes." });
after(() => parley.close());
const bot = await parley.chatbot({ workspace: "Acme", name: "Helpdesk" });

test("an ask creates a chat and stores the entry", async () => {
  const { entry } = await bot.ask(null, "Are you there?");
  assert.equal(entry.answer, "Yes.");
  const { data, total } = await bot.history(entry.chatId).page();
  assert.deepEqual({ data, total }, { data: [entry], total: 1 });
});
