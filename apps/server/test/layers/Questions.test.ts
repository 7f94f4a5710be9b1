import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, describe, layer } from "@effect/vitest";
import { ChatbotId, defaultSettings, type Chatbot } from "@parley/core";
import { Answerer } from "@parley/core/ports";
import { Effect, Layer, Stream } from "effect";
import { layerAnswerer } from "../../src/layers/AskingLayer.ts";
import { layerDocuments } from "../../src/layers/Documents.ts";
import { readSettings, Settings } from "../../src/Settings.ts";

const chatbot: Chatbot = {
  id: ChatbotId.make(1),
  name: "Bot",
  description: "",
  workspaceName: "Workspace",
  settings: defaultSettings,
};

const answer = (question: string) =>
  Stream.unwrap(
    Answerer.useSync((answerer) => answerer.answer(chatbot, Stream.empty, question)),
  ).pipe(
    Stream.runFold(
      () => "",
      (text, part) => (part._tag === "Delta" ? text + part.text : text),
    ),
  );

/** The answerer of a server without settings, which answers from this project's documents. */
const layerOwn = layerAnswerer.pipe(
  Layer.provide(layerDocuments(Stream.empty)),
  Layer.provide(Layer.effect(Settings, readSettings({}))),
  Layer.provide(NodeServices.layer),
);

describe("a server without settings", () => {
  layer(layerOwn)((it) => {
    it.effect("a server without settings links a quotation to its page in the guide", () =>
      Effect.gen(function* () {
        const text = yield* answer("Can I use my own PostgreSQL database?");
        assert.match(
          text,
          /^\[Questions and answers › .*\]\(\/docs\/faq#can-i-use-my-own-postgresql-database\)$/m,
        );
        assert.include(text, "](/docs/operations#start-on-your-own-postgresql)");
      }),
    );
  });
});
