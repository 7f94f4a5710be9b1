/**
 * A language model that takes its time: it speaks OpenAI's chat completions, and answers each question
 * with the question itself.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export interface SlowModel {
  /** Settings that make a server use it. */
  readonly environment: Readonly<Record<string, string>>;
  /** How many questions came so far. */
  readonly asked: () => number;
  readonly close: () => void;
}

/** What it answers. */
export const slowAnswerOf = (question: string) => `You asked: ${question}`;

interface Message {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly text?: string }>;
}

const textOf = ({ content }: Message): string =>
  typeof content === "string" ? content : content.map(({ text = "" }) => text).join("");

/** Each answer comes in three pieces and takes `millis`. */
export const startSlowModel = async (millis: number): Promise<SlowModel> => {
  let asked = 0;
  const server = createServer(async (request, response) => {
    asked++;
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const { messages } = JSON.parse(body) as { readonly messages: ReadonlyArray<Message> };
    const text = slowAnswerOf(textOf(messages.findLast(({ role }) => role === "user")!));
    const send = (fields: object) =>
      response.write(
        `data: ${JSON.stringify({ id: "slow", object: "chat.completion.chunk", created: 1, model: "slow", ...fields })}\n\n`,
      );
    const third = Math.ceil(text.length / 3);
    response.writeHead(200, { "content-type": "text/event-stream" });
    for (let at = 0; at < 3; at++) {
      await sleep(millis / 3);
      const content = text.slice(at * third, (at + 1) * third);
      send({ choices: [{ index: 0, delta: { role: "assistant", content }, finish_reason: null }] });
    }
    send({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
    send({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });
    response.end("data: [DONE]\n\n");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  return {
    environment: {
      PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
      PARLEY_LLM_MODEL: "slow",
    },
    asked: () => asked,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};
