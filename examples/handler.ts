import { openParley } from "@parley/core/promise";
import { makeWebHandler } from "@parley/http";
import { memory } from "@parley/store-memory";

export const parley = await openParley({
  store: memory(),
  answerer: ({ question }) => `You asked: ${question}`,
});
const bot = await parley.chatbot({ workspace: "Acme", name: "Helpdesk", helloMessage: "Hello!" });
// In a persistent store, create the key only once. Its text is not shown again.
export const { key: apiKey } = await bot.createKey({ name: "web" });

export const { handler } = makeWebHandler(parley.layer, {
  basePaths: { general: "/support/chatbot", answers: "/support/ask" },
});
