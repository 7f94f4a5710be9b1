import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: defaultSettings,
};

const parley = makeParley(
  layerParley({
    store: layerMemoryWith([chatbot]), // or layerPostgres({ url })
    answerer: ({ question }) => `You asked: ${question}`, // or a language model
  }),
);

const { entry } = await parley.ask(chatbot, { question: "Are you there?" });
console.log(entry.answer); // You asked: Are you there?
await parley.dispose();
