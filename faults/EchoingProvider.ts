/**
 * A provider of language models and of moderation that fails in every way, and repeats what it was told
 * wherever a text fits: in bodies, headers, reasons and addresses.
 */
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface EchoingProvider {
  readonly url: string;
  /** All bodies that it got. */
  readonly told: () => string;
  readonly close: () => void;
}

type Fault = (response: ServerResponse, said: string) => void;

const stream = (response: ServerResponse, ...events: ReadonlyArray<string>): void => {
  response.writeHead(200, { "content-type": "text/event-stream", "x-echo": "said" });
  for (const event of events) response.write(`data: ${event}\n\n`);
};

const chunk = (choice: object): string =>
  JSON.stringify({
    id: "c",
    object: "chat.completion.chunk",
    created: 1,
    model: "m",
    choices: [{ index: 0, ...choice }],
  });
const delta = (content: string) =>
  chunk({ delta: { role: "assistant", content }, finish_reason: null });

const status =
  (code: number): Fault =>
  (response, said) => {
    const ascii = said.replace(/[^ -~]/g, "");
    response
      .writeHead(code, ascii, { "x-echo": ascii, "content-type": "application/json" })
      .end(JSON.stringify({ error: { message: said, code: said, type: said, param: said } }));
  };

/** What a question can ask for, by `fault=<name>`. */
export const faults: Readonly<Record<string, Fault>> = {
  "400": status(400),
  "401": status(401),
  "404": status(404),
  "413": status(413),
  "429": status(429),
  "500": status(500),
  "503": status(503),
  html: (response, said) =>
    response.writeHead(502, { "content-type": "text/html" }).end(`<h1>${said}</h1>`),
  redirect: (response, said) =>
    response.writeHead(302, { location: `http://127.0.0.1:9/${encodeURIComponent(said)}` }).end(),
  shape: (response, said) =>
    response
      .writeHead(200, { "content-type": "application/json" })
      .end(JSON.stringify({ choices: said, results: said })),
  garbage: (response, said) => {
    stream(response, `{"choices": ${said}`, "[DONE]");
    response.end();
  },
  errorEvent: (response, said) => {
    stream(response, JSON.stringify({ error: { message: said, code: said, type: said } }));
    response.end();
  },
  errorLater: (response, said) => {
    stream(response, delta(said), JSON.stringify({ error: { message: said } }));
    response.end();
  },
  cut: (response, said) => {
    stream(response, delta(said));
    setTimeout(() => response.socket?.destroy(), 10);
  },
  reset: (response) => response.socket?.destroy(),
  finish: (response, said) => {
    stream(response, delta(said), chunk({ delta: {}, finish_reason: said }), "[DONE]");
    response.end();
  },
  filtered: (response, said) => {
    stream(response, delta(said), chunk({ delta: {}, finish_reason: "content_filter" }), "[DONE]");
    response.end();
  },
};

const fine: Fault = (response, said) => {
  stream(response, delta(said), chunk({ delta: {}, finish_reason: "stop" }), "[DONE]");
  response.end();
};

const judges: Fault = (response, said) => {
  const flagged = said.includes("judge=");
  const categories = { [said]: flagged, hate: flagged };
  response
    .writeHead(200, { "content-type": "application/json" })
    .end(JSON.stringify({ results: [{ flagged, categories }] }));
};

export const startEchoingProvider = async (): Promise<EchoingProvider> => {
  let told = "";
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const piece of request.setEncoding("utf8")) body += piece;
    told += `${request.headers.authorization}\n${body}\n`;
    const { input, messages } = JSON.parse(body) as {
      readonly input?: string;
      readonly messages?: ReadonlyArray<{ readonly role: string }>;
    };
    if (messages === undefined) {
      const name = /judge=(\w+)/.exec(input!)?.[1] ?? "";
      return (faults[name] ?? judges)(response, input!);
    }
    // Not what it answered before: that would grow and grow.
    const said = JSON.stringify(messages.filter(({ role }) => role !== "assistant")).slice(-4000);
    const name = /fault=(\w+)/.exec(JSON.stringify(messages.at(-1)))?.[1] ?? "";
    (faults[name] ?? fine)(response, said);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  return {
    url: `http://127.0.0.1:${port}/v1`,
    told: () => told,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};
