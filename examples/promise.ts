import { Access, Asking, Chats, defaultSettings, type Chatbot } from "@parley/core";
import { Moderator } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerOffline, makeKnowledge } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { Digest } from "effect/crypto";

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
  Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
    Layer.provide([
      layerMemoryWith([chatbot]),
      Layer.unwrap(Effect.map(makeKnowledge(passages), layerOffline)),
      Moderator.layerOff,
      Digest.layerWebCrypto,
    ]),
  ),
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
