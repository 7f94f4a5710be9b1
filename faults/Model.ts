/**
 * A language model with OpenAI's chat completions API. It numbers its answers, so that no two are alike, and keeps
 * every prompt.
 */
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export interface Message {
  readonly role: string;
  readonly text: string;
}

export interface Call {
  /** The user's last message. */
  readonly question: string;
  /** The messages before the question, without instructions. */
  readonly earlier: ReadonlyArray<Message>;
  readonly answer: string;
  /** The tokens that the model counts for the call. */
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** When the call arrived, by `performance.now()`. */
  readonly at: number;
  /** Whether the answer is still being sent, to a caller that is still there. */
  isOpen: boolean;
}

export interface Model {
  readonly url: string;
  /** Settings that make a server use the model. */
  readonly environment: Readonly<Record<string, string>>;
  /** Every call so far, in order of arrival. */
  readonly calls: ReadonlyArray<Call>;
  readonly close: () => void;
}

interface WireMessage {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly text?: string }>;
}

const textOf = ({ content }: WireMessage): string =>
  typeof content === "string" ? content : content.map(({ text = "" }) => text).join("");

const chance = (share: number) => Math.random() < share;

export const startModel = async (): Promise<Model> => {
  const calls: Array<Call> = [];
  const server = createServer(async (request, response) => {
    const at = performance.now();
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const { messages } = JSON.parse(body) as { readonly messages: ReadonlyArray<WireMessage> };
    const conversation = messages
      .filter(({ role }) => role !== "system")
      .map((message) => ({ role: message.role, text: textOf(message) }));
    const question = conversation.pop()!.text;
    const n = calls.length + 1;
    const call: Call = {
      question,
      earlier: conversation,
      answer: `Answer ${n} 😀: the question was "${question}"`,
      promptTokens: 1000 + n,
      completionTokens: n,
      at,
      isOpen: true,
    };
    calls.push(call);
    response.once("close", () => (call.isOpen = false));
    const send = (fields: object) =>
      response.write(
        `data: ${JSON.stringify({ id: "m", object: "chat.completion.chunk", created: 1, model: "m", ...fields })}\n\n`,
      );
    const say = (delta: object, finish_reason: string | null) =>
      send({ choices: [{ index: 0, delta, finish_reason }] });
    // Half of the answers are sent at once, so that some turns end while others begin. Some of the rest take long
    // enough to overlap with a fault.
    const pause = chance(0.5) ? 0 : chance(0.2) ? 500 : 20 * Math.random();
    response.writeHead(200, { "content-type": "text/event-stream" });
    // The emoji has two code units, which may end up in different pieces.
    for (const piece of call.answer.match(/[^]{1,10}/g)!) {
      say({ role: "assistant", content: piece }, null);
      if (pause > 0) await sleep(pause);
    }
    say({}, "stop");
    const { completionTokens, promptTokens } = call;
    const total_tokens = promptTokens + completionTokens;
    send({
      choices: [],
      usage: { prompt_tokens: promptTokens, completion_tokens: completionTokens, total_tokens },
    });
    response.end("data: [DONE]\n\n");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/v1`;
  return {
    url,
    environment: { PARLEY_LLM_BASE_URL: url, PARLEY_LLM_MODEL: "m" },
    calls,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};
