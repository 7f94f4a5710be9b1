import { ArgumentInvalid, ChatNotFound, openParley } from "@parley/core/promise";
import { memory } from "@parley/store-memory";

const parley = await openParley({
  store: memory(),
  answerer: async function* ({ earlier, question }) {
    let entries = 0;
    for await (const _ of earlier) entries++;
    yield `After ${entries} entries`;
    yield `, you asked: ${question}`;
  },
});
const bot = await parley.chatbot({
  workspace: "Acme",
  name: "Support",
  helloMessage: "Hello!",
});

const ann = bot.as("user-7"); // has and makes only this user's chats
const chat = await ann.createChat();
for await (const event of ann.stream(chat.id, "Are you open?")) {
  if (event.type === "delta") process.stdout.write(event.text);
  else console.log(` (stored as entry ${event.entry.id})`);
}

const { entry } = await ann.ask(chat.id, "And tomorrow?", { idempotencyKey: "message-2" });
console.log(entry.answer);

for await (const { answer } of ann.history(chat.id, { orderBy: "id" })) console.log("-", answer);
const { data, total } = await ann.chats({ limit: 10 }).page();
console.log(`${data.length} of ${total} chats`);

try {
  await ann.ask(chat.id, " ");
} catch (error) {
  if (error instanceof ArgumentInvalid) console.log(error.field, error.reason);
}
await ann.ask(99, "Hello?").catch((error) => console.log(error instanceof ChatNotFound));

await parley.close();
