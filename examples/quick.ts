import { openParley } from "@parley/core/promise";
import { memory } from "@parley/store-memory";

const parley = await openParley({
  store: memory(), // or sqlite(file) or postgres(url), which survive a restart
  answerer: ({ question }) => `You asked: ${question}`, // or languageModel({ baseUrl, model })
});
const bot = await parley.chatbot({ workspace: "Acme", name: "Helpdesk" });

const { entry } = await bot.ask(null, "Are you there?");
console.log(entry.answer); // You asked: Are you there?
await parley.close();
