import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";
import { afterAll, expect, it } from "vitest";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: { ...defaultSettings, helloMessage: "Hello!" },
};

const parley = makeParley(
  layerParley({
    store: layerMemoryWith([chatbot]),
    answerer: ({ question }) => `You asked: ${question}`,
  }),
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
