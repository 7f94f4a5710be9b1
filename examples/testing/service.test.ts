import { AnswerUnavailable, openParley } from "@parley/core/promise";
import { memory } from "@parley/store-memory";
import { Layer } from "effect";
import { afterAll, expect, it } from "vitest";
import { makeSettableClock } from "./SettableClock.ts";

const clock = makeSettableClock("2026-03-01T09:00:00.000Z");
const parley = await openParley({
  store: Layer.provideMerge(memory(), clock.layer),
  answerer: async ({ earlier, question }) => {
    if (question === "Fail.") throw new Error("no answer");
    let number = 1;
    for await (const _ of earlier) number++;
    return `Answer ${number}`;
  },
});
afterAll(() => parley.close());
const bot = await parley.chatbot({ workspace: "Acme", name: "Helpdesk" });

it("every run has the same ids, times and answers", async () => {
  const chat = await bot.createChat({ userRef: "user-7" });
  clock.move(60_000);
  const { entry } = await bot.ask(chat.id, "Are you there?");
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

it("an ask whose answerer fails stores nothing", async () => {
  await expect(bot.ask(null, "Fail.")).rejects.toThrow(AnswerUnavailable);
  expect((await bot.chats().page()).total).toBe(1);
});
