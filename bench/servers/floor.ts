/**
 * The floor: `node:http` alone, which answers requests without checking a key or storing anything.
 *
 * Environment: PORT.
 */
import { once } from "node:events";
import { createServer, type IncomingMessage } from "node:http";
import { answer, instantAnswer } from "./answers.ts";

const details = JSON.stringify({
  status: 200,
  data: {
    chatBotName: "Bench bot",
    chatBotDescription: "Answers questions while it is measured.",
    workspaceName: "Bench",
  },
});

const bodyOf = async (request: IncomingMessage): Promise<any> => {
  let text = "";
  request.setEncoding("utf8").on("data", (chunk) => (text += chunk));
  await once(request, "end");
  return JSON.parse(text);
};

const entry = (question: string, answer: string) => ({
  status: 201,
  data: {
    id: 1,
    chat_id: 1,
    question,
    answer,
    moderation: "none",
    flagged: false,
    _createTime: new Date().toISOString(),
  },
});

const server = createServer(async (request, response) => {
  const send = (status: number, body: string): void =>
    void response
      .writeHead(status, {
        "content-type": "application/json; charset=utf-8",
        "content-length": Buffer.byteLength(body),
      })
      .end(body);
  if (request.method === "GET") return send(200, details);
  const { query } = await bodyOf(request);
  if (request.headers.accept !== "text/event-stream") {
    return send(201, JSON.stringify(entry(query, instantAnswer)));
  }
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  let whole = "";
  for await (const text of answer(query)) {
    whole += text;
    response.write(`event: delta\ndata: ${JSON.stringify({ text })}\n\n`);
  }
  response.end(`event: entry\ndata: ${JSON.stringify(entry(query, whole))}\n\n`);
});
server.keepAliveTimeout = 65_000;
server.listen(Number(process.env["PORT"]), "127.0.0.1");
process.once("SIGTERM", () => process.exit());
