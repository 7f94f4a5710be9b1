/**
 * A mock language model with OpenAI's chat completions API, which runs as its own process. Each answer has
 * `modelChunks` chunks, `modelMillis` milliseconds apart. It prints its port.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const modelChunks = 100;
export const modelMillis = 10;

const event = (choices: ReadonlyArray<object>, usage: object | null = null) =>
  `data: ${JSON.stringify({ id: "chatcmpl-1", object: "chat.completion.chunk", created: 1, model: "m", choices, usage })}\n\n`;
const delta = (delta: object, finish_reason: string | null = null) =>
  event([{ index: 0, delta, finish_reason }]);

const chunks = Array.from({ length: modelChunks }, (_, n) => delta({ content: `token${n} ` }));
const usage = { prompt_tokens: 50, completion_tokens: modelChunks, total_tokens: 50 + modelChunks };
const ending = `${delta({}, "stop")}${event([], usage)}data: [DONE]\n\n`;

const server = createServer((request, response) => {
  request.resume().once("end", () => {
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(delta({ role: "assistant", content: "" }));
    let sent = 0;
    const timer = setInterval(() => {
      response.write(chunks[sent++]);
      if (sent < modelChunks) return;
      clearInterval(timer);
      response.end(ending);
    }, modelMillis);
    response.once("close", () => clearInterval(timer));
  });
});

if (import.meta.main) {
  server.keepAliveTimeout = 65_000;
  server.listen(0, "127.0.0.1", () => console.log((server.address() as AddressInfo).port));
}
