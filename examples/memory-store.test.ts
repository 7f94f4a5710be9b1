import { openParley } from "@parley/core/promise";
import { memory } from "@parley/store-memory";
import { afterAll, expect, it } from "vitest";

const parley = await openParley({
  store: memory(),
  answerer: ({ question }) => `You asked: ${question}`,
});
afterAll(() => parley.close());
const bot = await parley.chatbot({ workspace: "Acme", name: "Helpdesk", helloMessage: "Hello!" });

it("an ask stores its question and answer", async () => {
  const chat = await bot.createChat({ userRef: "user-7" });
  const { entry } = await bot.ask(chat.id, "Are you there?");
  expect(entry.answer).toBe("You asked: Are you there?");

  const { data, total } = await bot.history(chat.id).page();
  expect(total).toBe(2); // the hello entry is one of them
  expect(data[0]).toEqual(entry);
});
