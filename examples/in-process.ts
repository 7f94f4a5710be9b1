import { makeClient, ResponseError } from "@parley/client";
import { apiKey, dispose, handler } from "./handler.ts";

const paths = { baseUrl: "/support/chatbot", askUrl: "/support/ask" };
const parley = makeClient({ fetch: handler, apiKey, ...paths });
for await (const event of parley.stream({ query: "Are you open?" })) {
  if (event.type === "delta") console.log(event.text);
}
for await (const { data, total } of parley.chats().pages()) console.log(data.length, total);
const absent = parley.history(99).page();
const error = await absent.catch((error: unknown) => error);
if (error instanceof ResponseError) console.log(error.status, error.message);
await dispose();
