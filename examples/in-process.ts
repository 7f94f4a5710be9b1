import { makeClient, ResponseError } from "@parley/client";
import { apiKey, handler } from "./handler.ts";

const paths = { baseUrl: "/support/chatbot", askUrl: "/support/ask" };
const parley = makeClient({ fetch: handler, apiKey, ...paths });

for await (const event of parley.stream({ query: "Are you open?" })) {
  if (event.type === "delta") process.stdout.write(event.text);
  if (event.type === "entry") console.log(` (chat ${event.entry.chat_id})`);
}
for await (const { data, total } of parley.chats().pages()) console.log(data.length, total);
await parley.history(99).page().catch((error: unknown) => {
  if (error instanceof ResponseError) console.log(error.status, error.message);
});
