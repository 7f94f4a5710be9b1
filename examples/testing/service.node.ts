import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";
import assert from "node:assert/strict";
import { after, test } from "node:test";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: defaultSettings,
};

const parley = makeParley(
  layerParley({ store: layerMemoryWith([chatbot]), answerer: () => "Yes." }),
);
after(() => parley.dispose());

test("an ask creates a chat and keeps the entry", async () => {
  const { entry } = await parley.ask(chatbot, { question: "Are you there?" });
  assert.equal(entry.answer, "Yes.");
  const { items, total } = await parley.history(chatbot, entry.chatId);
  assert.deepEqual({ items, total }, { items: [entry], total: 1 });
});
