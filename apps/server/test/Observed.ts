/**
 * Services that a server under test calls: an OpenTelemetry collector, and a provider of models and moderation.
 */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

/** A request that one of the services received. */
export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

const listen = async (
  reply: (received: Received) => { status: number; type: string; body: string },
) => {
  const received: Array<Received> = [];
  const server = createServer((request, response) => {
    let body = "";
    request.setEncoding("utf8");
    request.on("data", (chunk: string) => (body += chunk));
    request.on("end", () => {
      const call = { path: request.url!, headers: request.headers, body };
      received.push(call);
      const { body: text, status, type } = reply(call);
      response.writeHead(status, { "content-type": type }).end(text);
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    received,
    url: `http://127.0.0.1:${port}`,
    stop: () => {
      server.closeAllConnections();
      server.close();
    },
  };
};

export const startCollector = () =>
  listen(() => ({ status: 200, type: "application/json", body: "{}" }));

/**
 * Answers every question with `answer`, unless the question contains `fails`: the response is then a 400 that quotes
 * the question. If the question contains `unjudged`, moderation fails.
 */
export const startProvider = (answer: string) =>
  listen(({ body, path }) => {
    const error = (status: number) => ({
      status,
      type: "application/json",
      body: JSON.stringify({
        error: { message: /QUESTION[^"]*/.exec(body)?.[0], code: "model_overloaded" },
      }),
    });
    if (path.endsWith("/moderations")) {
      if (body.includes("unjudged")) return error(400);
      return {
        status: 200,
        type: "application/json",
        body: JSON.stringify({ results: [{ flagged: false, categories: {} }] }),
      };
    }
    if (body.includes("fails")) return error(400);
    const chunk = (delta: object, more: object = {}) =>
      `data: ${JSON.stringify({ id: "1", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, delta, ...more }], usage: { prompt_tokens: 5, completion_tokens: 3, total_tokens: 8 } })}\n\n`;
    return {
      status: 200,
      type: "text/event-stream",
      body:
        chunk({ role: "assistant", content: answer }) +
        chunk({}, { finish_reason: "stop" }) +
        "data: [DONE]\n\n",
    };
  });
