import { Access, Asking, Chats, defaultSettings, type Chatbot } from "@parley/core";
import { AnswerUnavailable, Moderator } from "@parley/core/ports";
import { makeParley } from "@parley/core/promise";
import { layerScripted } from "@parley/llm";
import { layerMemoryWith } from "@parley/store-memory";
import { Layer, Stream } from "effect";
import { Digest } from "effect/crypto";
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

const services = Layer.mergeAll(Access.layer, Chats.layer, Asking.layer).pipe(
  Layer.provide([
    layerMemoryWith([chatbot]),
    layerScripted(({ earlier, question }) =>
      question === "Fail."
        ? Stream.fail(new AnswerUnavailable({ reason: "the script says so" }))
        : [`Answer ${earlier.length + 1}`],
    ),
    Moderator.layerOff,
    Digest.layerWebCrypto,
  ]),
);
const parley = makeParley(Layer.provideMerge(services, clock.layer));
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
