/**
 * A language model for tests: an OpenAI-compatible endpoint that streams scripted answers word by word, and whose
 * moderation flags questions about weapons.
 */
import { createServer } from "node:http";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import { setTimeout as sleep } from "node:timers/promises";

export interface SlowModel {
  /** The settings for a server that uses this model. */
  readonly settings: Readonly<Record<string, string>>;
  /** The questions received so far. */
  readonly questions: ReadonlyArray<string>;
  /** The questions whose answers were cancelled. */
  readonly cancelled: ReadonlyArray<string>;
  readonly close: () => void;
}

/**
 * `script` returns the answer to a question; `undefined` makes the call fail with status 400. `pauseMillis` returns how
 * long each word takes.
 */
export const startSlowModel = async (
  script: (question: string) => string | undefined,
  pauseMillis: (question: string) => number = () => 60,
): Promise<SlowModel> => {
  const questions: Array<string> = [];
  const cancelled: Array<string> = [];
  const server = createServer(async (request, response) => {
    let body = "";
    for await (const chunk of request.setEncoding("utf8")) body += chunk;
    if (request.url === "/v1/moderations") {
      const flagged = /\bweapon/i.test(JSON.parse(body).input);
      return void response.end(
        JSON.stringify({ results: [{ flagged, categories: { violence: flagged } }] }),
      );
    }
    const { content } = JSON.parse(body).messages.at(-1);
    const question: string = typeof content === "string" ? content : content[0].text;
    questions.push(question);
    const answer = script(question);
    if (answer === undefined) return void response.writeHead(400).end("{}");
    response.on("close", () => {
      if (!response.writableFinished) cancelled.push(question);
    });
    const send = (choice: object) =>
      response.write(
        `data: ${JSON.stringify({ id: "c", object: "chat.completion.chunk", created: 1, model: "m", choices: [{ index: 0, ...choice }] })}\n\n`,
      );
    response.writeHead(200, { "content-type": "text/event-stream" });
    let due = performance.now();
    for (const content of answer.match(/\s*\S+\s*$|\s*\S+/g) ?? []) {
      if (response.destroyed) return;
      send({ delta: { role: "assistant", content }, finish_reason: null });
      // Timers fire late, so several words may be sent at once to keep the pace.
      due += pauseMillis(question);
      if (due > performance.now()) await sleep(due - performance.now());
    }
    send({ delta: {}, finish_reason: "stop" });
    response.end("data: [DONE]\n\n");
  });
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  return {
    settings: {
      PARLEY_LLM_BASE_URL: `http://127.0.0.1:${port}/v1`,
      PARLEY_LLM_MODEL: "m",
      PARLEY_MODERATION: "endpoint",
      PARLEY_MODERATION_BASE_URL: `http://127.0.0.1:${port}/v1`,
      PARLEY_MODERATION_MODEL: "m",
    },
    questions,
    cancelled,
    close: () => {
      server.close();
      server.closeAllConnections();
    },
  };
};
