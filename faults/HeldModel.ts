/**
 * A language model that a test holds in its hand: it speaks OpenAI's chat completions, and shows every
 * prompt that it gets.
 */
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

export interface Message {
  readonly role: string;
  readonly text: string;
}

/** One call. */
export interface Call {
  /** The last message of the user. */
  readonly question: string;
  /** The whole prompt, the question included. */
  readonly messages: ReadonlyArray<Message>;
  /** When it came, by `performance.now()`. */
  readonly at: number;
  /** Sends a piece of the answer; `false` when the caller does not take it as fast as it comes. */
  readonly say: (text: string) => boolean;
  /** Completes the answer, after a last piece. */
  readonly end: (text?: string) => void;
  readonly response: ServerResponse;
  /** When the caller went away before the end, by `performance.now()`; never if it did not. */
  readonly left: Promise<number>;
}

export interface HeldModel {
  /** Settings that make a server use it. */
  readonly environment: Readonly<Record<string, string>>;
  /** Every call so far, in order of arrival. */
  readonly calls: ReadonlyArray<Call>;
  /** The first call, made or to come, whose question has these words in it, one after the other. */
  readonly called: (word: string) => Promise<Call>;
  readonly callsWith: (word: string) => ReadonlyArray<Call>;
  readonly close: () => void;
}

interface WireMessage {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly text?: string }>;
}

const textOf = ({ content }: WireMessage): string =>
  typeof content === "string" ? content : content.map(({ text = "" }) => text).join("");

/** `answer` is told of every call, and may leave it to the test. */
export const startHeldModel = async (answer: (call: Call) => void): Promise<HeldModel> => {
  const calls: Array<Call> = [];
  const awaited: Array<{ readonly word: string; readonly resolve: (call: Call) => void }> = [];

  const server = createServer(async (request, response) => {
    const at = performance.now();
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    const { messages } = JSON.parse(body) as { readonly messages: ReadonlyArray<WireMessage> };
    const question = textOf(messages.findLast(({ role }) => role === "user")!);
    const send = (fields: object): boolean => {
      if (!response.headersSent) response.writeHead(200, { "content-type": "text/event-stream" });
      return response.write(
        `data: ${JSON.stringify({ id: "held", object: "chat.completion.chunk", created: 1, model: "held", ...fields })}\n\n`,
      );
    };
    const say = (content: string) =>
      send({ choices: [{ index: 0, delta: { role: "assistant", content }, finish_reason: null }] });
    const left = Promise.withResolvers<number>();
    response.once("close", () => {
      if (!response.writableFinished) left.resolve(performance.now());
    });
    const call: Call = {
      question,
      messages: messages.map((message) => ({ role: message.role, text: textOf(message) })),
      at,
      say,
      end: (text) => {
        if (text !== undefined) say(text);
        send({ choices: [{ index: 0, delta: {}, finish_reason: "stop" }] });
        send({ choices: [], usage: { prompt_tokens: 1, completion_tokens: 1, total_tokens: 2 } });
        response.end("data: [DONE]\n\n");
      },
      response,
      left: left.promise,
    };
    calls.push(call);
    for (const { resolve, word } of awaited) if (question.includes(word)) resolve(call);
    answer(call);
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  const callsWith = (word: string) => calls.filter(({ question }) => question.includes(word));
  return {
    environment: {
      PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
      PARLEY_LLM_MODEL: "held",
    },
    calls,
    called: (word) => {
      const [call] = callsWith(word);
      if (call !== undefined) return Promise.resolve(call);
      const { promise, resolve } = Promise.withResolvers<Call>();
      awaited.push({ word, resolve });
      return promise;
    },
    callsWith,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};
