import { openParley, type AnswererFunction } from "@parley/core/promise";
import { memory } from "@parley/store-memory";

/** Your own data, of which each user may see only a part. */
const orders = [
  { user: "ann", number: 17, state: "sent" },
  { user: "bob", number: 18, state: "lost" },
];
interface Session {
  readonly name: string;
}

const answerer: AnswererFunction = async function* ({ context, userRef }) {
  const own = orders.filter(({ user }) => user === userRef);
  yield `${(context as Session).name}, order ${own.map((order) => `${order.number} is ${order.state}`)}.`;
  yield { _tag: "Metadata", metadata: { sources: [{ title: "Your orders", url: "/orders" }] } };
};

const parley = await openParley({
  store: memory(),
  answerer,
  questionLength: 5_000,
  onEntry: ({ chat, entry }) => console.log(`[entry ${entry.id} for ${chat.userRef}]`),
});
const bot = await parley.chatbot({ workspace: "Acme", name: "Shop" });

const ann = bot.as("ann");
const context: Session = { name: "Ann" };
const { entry } = await ann.ask(null, "Where is my order?", { context, include: ["metadata"] });
console.log(entry.answer, entry.metadata);

// A colleague answers. The author marks an entry that a person wrote.
const { chatId, id } = entry;
await bot.post(chatId, "It arrives today.", { metadata: { author: "Carl" } });

// What is new since Ann's last visit, also if another process stored it.
const news = ann.history(chatId, { after: id, orderBy: "id", include: ["metadata"] });
for await (const { answer, metadata } of news) console.log(`${metadata?.["author"]}: ${answer}`);

await ann.rename(chatId, "Order 17");
await ann.rate(chatId, id, { rating: "good", comment: "Thanks!" });
const [chat] = (await ann.chats({ orderBy: "lastEntryTime", include: ["activity"] }).page()).data;
console.log(chat!.name, chat!.entries);
console.log((await ann.delete(chatId)).name, (await ann.chats().page()).total);
await parley.close();
