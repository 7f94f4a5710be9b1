import { Access, Asking, Chats, defaultSettings, type Chatbot } from "@parley/core";
import { Moderator } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerScripted } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Layer } from "effect";
import { Digest } from "effect/crypto";
import { afterAll, expect, it } from "vitest";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: { ...defaultSettings, helloMessage: "Hello!" },
};

const parley = makeParley(
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
    Layer.provide([
      layerMemoryWith([chatbot]), // the store
      layerScripted(({ question }) => [`You asked: ${question}`]), // the answerer
      Moderator.layerOff,
      Digest.layerWebCrypto,
    ]),
  ),
);
afterAll(() => parley.dispose());

it("keeps a question with its answer", async () => {
  const { chat } = await parley.createChat(chatbot, { userRef: "user-7" });
  const { entry } = await parley.ask(chatbot, { chatId: chat.id, question: "Are you there?" });
  expect(entry.answer).toBe("You asked: Are you there?");

  const { items, total } = await parley.history(chatbot, chat.id);
  expect(total).toBe(2); // the hello entry is one of them
  expect(items[0]).toEqual(entry);
});
