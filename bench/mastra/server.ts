/**
 * A Mastra agent behind `node:http`, with its memory in PostgreSQL.
 *
 * Environment: DATABASE_URL, PORT, MODEL_URL.
 */
import { Agent } from "@mastra/core/agent";
import { Memory } from "@mastra/memory";
import { PostgresStore } from "@mastra/pg";
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";

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

const bodyOf = async (request: IncomingMessage): Promise<any> => {
  let text = "";
  request.setEncoding("utf8").on("data", (chunk) => (text += chunk));
  await once(request, "end");
  return JSON.parse(text);
};

const toEntry = (chat_id: number, question: string, answer: string) => ({
  status: 201,
  data: {
    id: ++entries,
    chat_id,
    question,
    answer,
    moderation: "none",
    flagged: false,
    _createTime: new Date().toISOString(),
  },
});

const server = createServer(async (request, response) => {
  const send = (status: number, body: object): void => {
    const text = JSON.stringify(body);
    response
      .writeHead(status, {
        "content-type": "application/json; charset=utf-8",
        "content-length": Buffer.byteLength(text),
      })
      .end(text);
  };
  if (request.method === "GET") return send(200, { status: 200 });
  const { chat_id, name, query } = await bodyOf(request);
  if (request.url === "/api/chats") {
    const id = ++chats;
    await memory.createThread({ threadId: String(id), resourceId: resource, title: name });
    return send(201, { status: 201, data: { id } });
  }
  const options = { memory: { thread: String(chat_id), resource } };
  // Even a plain ask streams from the model, as it does on the other servers.
  const stream = await agent.stream(query, options);
  if (request.headers.accept !== "text/event-stream") {
    return send(201, toEntry(chat_id, query, await stream.text));
  }
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  let whole = "";
  for await (const text of stream.textStream) {
    whole += text;
    response.write(`event: delta\ndata: ${JSON.stringify({ text })}\n\n`);
  }
  response.end(`event: entry\ndata: ${JSON.stringify(toEntry(chat_id, query, whole))}\n\n`);
});
server.keepAliveTimeout = 65_000;
server.listen(Number(process.env["PORT"]), "127.0.0.1");
process.once("SIGTERM", () => process.exit());
