import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import { makeParley } from "@parley/core/promise";
import { layerOffline, makeKnowledge } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Effect, Layer } from "effect";

const passages = [
  {
    source: "opening-hours.md",
    headings: ["Opening hours"],
    text: "The shop is open from 9 to 17.",
  },
];

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: defaultSettings,
};

const parley = makeParley(
  layerParley({
    store: layerMemoryWith([chatbot]),
    answerer: Layer.unwrap(Effect.map(makeKnowledge(passages), layerOffline)),
  }),
);

try {
  const { entry } = await parley.ask(chatbot, { question: "What are the opening hours?" });
  console.log(entry.answer);
  await parley.history(chatbot, 99);
} catch (error) {
  console.log((error as { readonly _tag: string })._tag); // ChatNotFound
} finally {
  await parley.dispose();
}
