/**
 * A language model with OpenAI's chat completions API, which takes a while to complete each answer.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

export interface SlowModel {
  /** Settings that make a server use this model. */
  readonly settings: Readonly<Record<string, string>>;
  /** How many questions it has received. */
  readonly asked: () => number;
  readonly close: () => void;
}

/** A chunk of a streamed completion, as a server-sent event. */
export const chunk = (delta: object, finish: string | null = null): string =>
  `data: ${JSON.stringify({
    id: "c",
    object: "chat.completion.chunk",
    created: 1,
    model: "slow",
    choices: [{ index: 0, delta, finish_reason: finish }],
  })}\n\n`;

/** @param wait delays the second half of an answer */
export const startSlowModel = async (wait: () => Promise<unknown>): Promise<SlowModel> => {
  let asked = 0;
  const server = createServer(async (request, response) => {
    asked++;
    request.resume();
    await once(request, "end");
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(chunk({ role: "assistant", content: "At " }));
    await wait();
    response.write(chunk({ content: "last." }));
    response.end(`${chunk({}, "stop")}data: [DONE]\n\n`);
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    settings: {
      PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
      PARLEY_LLM_MODEL: "slow",
      PARLEY_LLM_API_KEY: "k",
    },
    asked: () => asked,
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
};
