import { openParley } from "@parley/core/promise";
import { memory } from "@parley/store-memory";
import { randomUUID } from "node:crypto";
import { DatabaseSync } from "node:sqlite";

const parley = await openParley({ store: memory(), answerer: () => "Yes." });
const bot = await parley.chatbot({ workspace: "Acme", name: "Helpdesk" });

/** Stands in for your own database. */
const own = new DatabaseSync(":memory:");
own.exec("create table ticket (id text primary key, subject text, chat_id integer)");

/** First, your own row, in your own transaction. The chat's idempotency key contains the row's id. */
const addTicket = (subject: string) => {
  const id = randomUUID();
  own.prepare("insert into ticket values (?, ?, null)").run(id, subject);
  return { id, subject };
};

/** Then the chat: repeated calls with the key return the same chat for 24 hours. */
const addChat = ({ id, subject }: { id: string; subject: string }) =>
  bot.createChat({ name: subject }, { idempotencyKey: `ticket ${id}` });

/** Last, the confirmation. */
const confirm = (id: string, chatId: number) =>
  own.prepare("update ticket set chat_id = ? where id = ?").run(chatId, id);

/** Completes what a crash left unfinished. Call it at every start and every few minutes. */
const repair = async () => {
  for (const ticket of own.prepare("select id, subject from ticket where chat_id is null").all()) {
    const { id, subject } = ticket as { id: string; subject: string };
    confirm(id, (await addChat({ id, subject })).id);
  }
};

await addChat(addTicket("No delivery")); // and the process dies before confirming
await repair();
console.log(own.prepare("select subject, chat_id from ticket").all().map(Object.values));
console.log((await bot.chats().page()).total);
await parley.close();
