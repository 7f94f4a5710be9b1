import { Access, Asking, Chats, defaultSettings, type Chatbot } from "@parley/core";
import { Moderator } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerScripted } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Layer } from "effect";
import { Digest } from "effect/crypto";
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
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
    Layer.provide([
      layerMemoryWith([chatbot]),
      layerScripted(() => ["Yes."]),
      Moderator.layerOff,
      Digest.layerWebCrypto,
    ]),
  ),
);
after(() => parley.dispose());

test("an ask creates a chat and keeps the entry", async () => {
  const { entry } = await parley.ask(chatbot, { question: "Are you there?" });
  assert.equal(entry.answer, "Yes.");
  const { items, total } = await parley.history(chatbot, entry.chatId);
  assert.deepEqual({ items, total }, { items: [entry], total: 1 });
});
