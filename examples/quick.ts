import { Access, Asking, Chats, defaultSettings, type Chatbot } from "@parley/core";
import { Moderator } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerScripted } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Layer } from "effect";
import { Digest } from "effect/crypto";

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
      layerMemoryWith([chatbot]), // the store, or layerPostgres({ url })
      layerScripted(({ question }) => [`You asked: ${question}`]), // the answerer, or a language model
      Moderator.layerOff,
      Digest.layerWebCrypto,
    ]),
  ),
);

const { entry } = await parley.ask(chatbot, { question: "Are you there?" });
console.log(entry.answer); // You asked: Are you there?
await parley.dispose();
