/**
 * A language model with OpenAI's chat completions API, whose answers a test controls.
 */
import { once } from "node:events";
import { createServer, type IncomingHttpHeaders, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { text as readAll } from "node:stream/consumers";

/** A request that an endpoint received. */
export interface Received {
  readonly path: string;
  readonly headers: IncomingHttpHeaders;
  readonly body: string;
}

/** Starts a server that reads each request, and lets `respond` respond to it. */
export const startEndpoint = async (
  respond: (request: Received, response: ServerResponse) => unknown,
) => {
  const received: Array<Received> = [];
  const server = createServer(async (request, response) => {
    const call = { path: request.url!, headers: request.headers, body: await readAll(request) };
    received.push(call);
    respond(call, response);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const close = () => {
    server.closeAllConnections();
    server.close();
  };
  return { received, url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, close };
};

/** A request for an answer. */
export interface ModelRequest {
  /** The question, and the whole prompt as JSON. */
  readonly text: string;
  readonly prompt: string;
  readonly response: ServerResponse;
  /** Sends a piece of the answer. */
  readonly say: (content: string) => void;
  readonly end: (usage?: object) => void;
}

export type TestModel = Awaited<ReturnType<typeof startTestModel>>;

const chunk = (delta: object, finish: string | null = null): string =>
  `data: ${JSON.stringify({
    id: "c",
    object: "chat.completion.chunk",
    created: 1,
    model: "slow",
    choices: [{ index: 0, delta, finish_reason: finish }],
  })}\n\n`;

/** Also moderates, and flags nothing. `refuse` returns the status and error of the requests that fail. */
export const startTestModel = async (
  answer: (request: ModelRequest) => unknown,
  refuse: (request: Received) => readonly [status: number, error: object] | undefined = () =>
    undefined,
) => {
  const endpoint = await startEndpoint((request, response) => {
    const json = (status: number, body: object) =>
      response.writeHead(status, { "content-type": "application/json" }).end(JSON.stringify(body));
    const refusal = refuse(request);
    if (refusal !== undefined) return json(refusal[0], { error: refusal[1] });
    if (request.path.endsWith("/moderations"))
      return json(200, { results: [{ flagged: false, categories: {} }] });
    const { content } = JSON.parse(request.body).messages.at(-1);
    const write = (text: string) => {
      if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(text);
    };
    return answer({
      text: typeof content === "string" ? content : content.map((part: any) => part.text).join(""),
      prompt: request.body,
      response,
      say: (content) => write(chunk({ role: "assistant", content })),
      end: (usage) => {
        write(chunk({}, "stop"));
        if (usage) write(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
        response.end("data: [DONE]\n\n");
      },
    });
  });
  /** Settings that make a server use this model. */
  const settings = {
    PARLEY_LLM_BASE_URL: `${endpoint.url}/v1`,
    PARLEY_LLM_MODEL: "slow",
    PARLEY_LLM_API_KEY: "k",
  };
  return { ...endpoint, settings };
};

export interface SlowModel extends TestModel {
  /** How many questions it has received. */
  readonly calls: () => number;
}

/** @param wait delays the second half of an answer */
export const startSlowModel = async (wait: () => Promise<unknown>): Promise<SlowModel> => {
  let calls = 0;
  const model = await startTestModel(async ({ end, say }) => {
    calls++;
    say("At ");
    await wait();
    say("last.");
    end();
  });
  return { ...model, calls: () => calls };
};
