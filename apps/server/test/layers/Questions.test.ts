import * as NodeServices from "@effect/platform-node/NodeServices";
import { assert, describe, layer } from "@effect/vitest";
import { ChatbotId, defaultSettings, type Chatbot } from "@parley/core";
import { Answerer } from "@parley/core/ports";
import { Effect, Layer, Stream } from "effect";
import { layerAnswerer } from "../../src/layers/AskingLayer.ts";
import { layerDocuments } from "../../src/layers/Documents.ts";
import { readSettings, Settings } from "../../src/Settings.ts";
import { questions } from "./questions.ts";

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
    it.effect(
      "a server without settings answers newcomers' questions well, or admits that it is not sure",
      () =>
        Effect.gen(function* () {
          const bad: Array<string> = [];
          const wrong: Array<string> = [];
          for (const [question, ...good] of questions) {
            const text = (yield* answer(question)).replaceAll(/\s+/g, " ");
            if (good.every((pattern) => pattern.test(text))) continue;
            bad.push(`${question} -> ${text}`);
            if (
              !/^(I am not sure this answers your question:|The documents do not cover that)/.test(
                text,
              )
            ) {
              wrong.push(bad.at(-1)!);
            }
          }
          assert.deepStrictEqual(wrong, []);
          assert.isAtMost(bad.length, 5, bad.join("\n"));
        }),
    );

    it.effect(
      "a server without settings that has no answer or was asked nothing suggests three questions that it can answer",
      () =>
        Effect.gen(function* () {
          for (const message of ["hello", "Danke!", "help", "What is the capital of France?"]) {
            const text = yield* answer(message);
            const examples = [...text.matchAll(/^- (.+\?)$/gm)].map(([, example]) => example!);
            assert.lengthOf(examples, 3, text);
            for (const example of examples) {
              assert.match(
                yield* answer(example),
                /^(?!I am not sure|The documents do not)/,
                example,
              );
            }
          }
        }),
    );

    it.effect(
      "a server without settings links a quotation to its source, relative to the documents folder",
      () =>
        Effect.gen(function* () {
          const text = yield* answer("Can I use my own PostgreSQL database?");
          assert.include(text, "](operations.md#start-on-your-own-postgresql)");
          assert.match(
            text,
            /\n\n---\n\nSource: \[faq\.md › .*\]\(faq\.md#can-i-use-my-own-postgresql-database\)$/,
          );
        }),
    );
  });
});
