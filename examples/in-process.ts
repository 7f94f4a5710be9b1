import { makeClient, ResponseError } from "@parley/client";
import { apiKey, handler, parley } from "./handler.ts";

const paths = { baseUrl: "/support/chatbot", askUrl: "/support/ask" };
const client = makeClient({ fetch: handler, apiKey, ...paths });
for await (const event of client.stream({ query: "Are you open?" })) {
  if (event.type === "delta") console.log(event.text);
}
for await (const { data, total } of client.chats().pages()) console.log(data.length, total);
const absent = client.history(99).page();
const error = await absent.catch((error: unknown) => error);
if (error instanceof ResponseError) console.log(error.status, error.message);
await parley.close();
