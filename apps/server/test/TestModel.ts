/**
 * A language model with OpenAI's chat completions API, whose answers a test controls.
 */
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

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

export interface TestModel {
  /** Settings that make a server use this model. */
  readonly settings: Readonly<Record<string, string>>;
  readonly close: () => void;
}

const chunk = (delta: object, finish: string | null = null): string =>
  `data: ${JSON.stringify({
    id: "c",
    object: "chat.completion.chunk",
    created: 1,
    model: "slow",
    choices: [{ index: 0, delta, finish_reason: finish }],
  })}\n\n`;

export const startTestModel = async (
  answer: (request: ModelRequest) => unknown,
): Promise<TestModel> => {
  const server = createServer(async (request, response) => {
    let prompt = "";
    for await (const part of request.setEncoding("utf8")) prompt += part;
    const { content } = JSON.parse(prompt).messages.at(-1);
    const write = (text: string) => {
      if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" });
      response.write(text);
    };
    answer({
      text: typeof content === "string" ? content : content.map((part: any) => part.text).join(""),
      prompt,
      response,
      say: (content) => write(chunk({ role: "assistant", content })),
      end: (usage) => {
        write(chunk({}, "stop"));
        if (usage) write(`data: ${JSON.stringify({ choices: [], usage })}\n\n`);
        response.end("data: [DONE]\n\n");
      },
    });
  }).listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  return {
    settings: {
      PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
      PARLEY_LLM_MODEL: "slow",
      PARLEY_LLM_API_KEY: "k",
    },
    close: () => {
      server.closeAllConnections();
      server.close();
    },
  };
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
