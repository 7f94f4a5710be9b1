import { defaultSettings, layerParley, type Chatbot } from "@parley/core";
import { makeParley } from "@parley/core/promise";
import { layerMemoryWith } from "@parley/store-memory";
import { Layer } from "effect";
import { afterAll, expect, it } from "vitest";
import { makeSettableClock } from "./SettableClock.ts";

const chatbot: Chatbot = {
  id: 1,
  name: "Helpdesk",
  description: "",
  workspaceName: "Acme",
  settings: defaultSettings,
};
const clock = makeSettableClock("2026-03-01T09:00:00.000Z");

const parley = makeParley(
  layerParley({
    store: layerMemoryWith([chatbot]),
    answerer: async ({ earlier, question }) => {
      if (question === "Fail.") throw new Error("no answer");
      let number = 1;
      for await (const _ of earlier) number++;
      return `Answer ${number}`;
    },
  }).pipe(Layer.provideMerge(clock.layer)),
);
afterAll(() => parley.dispose());

it("gives the same ids, times and answers in every run", async () => {
  const { chat } = await parley.createChat(chatbot, { userRef: "user-7" });
  clock.move(60_000);
  const { entry } = await parley.ask(chatbot, { chatId: chat.id, question: "Are you there?" });
  expect([chat, entry]).toEqual([
    { id: 1, name: null, userRef: "user-7", createTime: new Date("2026-03-01T09:00:00.000Z") },
    {
      id: 1,
      chatId: 1,
      question: "Are you there?",
      answer: "Answer 1",
      moderation: "none",
      flagged: false,
      createTime: new Date("2026-03-01T09:01:00.000Z"),
    },
  ]);
});

it("stores nothing when no answer comes", async () => {
  const failing = parley.ask(chatbot, { question: "Fail." });
  await expect(failing).rejects.toMatchObject({ _tag: "AnswerUnavailable" });
  expect((await parley.listChats(chatbot)).total).toBe(1);
});
