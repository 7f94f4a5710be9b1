/**
 * A Mastra agent behind `node:http`, with its memory in PostgreSQL.
 *
 * Environment: DATABASE_URL, PORT, MODEL_URL.
 */
import { Agent } from "@mastra/core/agent";
import { Memory } from "@mastra/memory";
import { PostgresStore } from "@mastra/pg";
import { entryOf, serve, streamAnswer } from "../servers/answers.ts";

const storage = new PostgresStore({
  id: "storage",
  connectionString: process.env["DATABASE_URL"]!,
  max: 10,
});
await storage.init();
const memory = new Memory({ storage, options: { lastMessages: 40, semanticRecall: false } });
const model = { id: "bench/m" as const, url: process.env["MODEL_URL"]!, apiKey: "none" };
const agent = new Agent({
  id: "bench",
  name: "Bench bot",
  instructions: "Answer the question.",
  model,
  memory,
});

const resource = "u-1";
let chats = 0;
let entries = 0;

serve(async ({ headers, method, url }, body, response) => {
  if (method === "GET") return [200, { status: 200 }];
  const { chat_id, name, query } = body;
  if (url === "/api/chats") {
    const id = ++chats;
    await memory.createThread({ threadId: String(id), resourceId: resource, title: name });
    return [201, { status: 201, data: { id } }];
  }
  const options = { memory: { thread: String(chat_id), resource } };
  // Even a plain ask streams from the model, as it does on the other servers.
  const stream = await agent.stream(query, options);
  const finish = (answer: string) => entryOf(++entries, chat_id, query, answer);
  if (headers.accept !== "text/event-stream") return [201, finish(await stream.text)];
  return streamAnswer(response, stream.textStream, finish);
});
