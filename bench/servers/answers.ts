/**
 * The answers that the compared servers give. Unless a language model answers, all servers call the same function, so
 * the benchmark measures the work around an answer.
 */
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { json } from "node:stream/consumers";
import { setTimeout as sleep } from "node:timers/promises";

/** The question that is answered at once, in one piece. */
export const instantQuestion = "What does the benchmark ask again and again?";
export const instantAnswer =
  "The benchmark asks one question again and again, and this is its answer.";

/** A question that Parley's own documents answer. */
export const documentsQuestion = "How do I back up the database?";

/** The question that is answered in pieces, a few milliseconds apart. */
export const pacedQuestion = "What does the benchmark say piece by piece?";
const pacedPieces = 200;
const pacedMillis = 5;

export async function* answer(question: string): AsyncGenerator<string> {
  if (question !== pacedQuestion) return yield instantAnswer;
  for (let n = 1; n <= pacedPieces; n++) {
    await sleep(pacedMillis);
    yield `piece ${n} `;
  }
}

/** The envelope of an entry that nothing stores. */
export const entryOf = (id: number, chat_id: number, question: string, answer: string) => ({
  status: 201,
  data: {
    id,
    chat_id,
    question,
    answer,
    moderation: "none",
    flagged: false,
    _createTime: new Date().toISOString(),
  },
});

/** Sends an answer piece by piece, and then the entry that `finish` makes of the whole answer. */
export const streamAnswer = async (
  response: ServerResponse,
  pieces: AsyncIterable<string>,
  finish: (answer: string) => object | Promise<object>,
): Promise<void> => {
  response.writeHead(200, { "content-type": "text/event-stream; charset=utf-8" });
  let whole = "";
  for await (const text of pieces) {
    whole += text;
    response.write(`event: delta\ndata: ${JSON.stringify({ text })}\n\n`);
  }
  response.end(`event: entry\ndata: ${JSON.stringify(await finish(whole))}\n\n`);
};

/**
 * Serves on PORT with `node:http` alone until SIGTERM. `respond` receives a POST's body, and returns the status and body
 * of the response, unless it sends the response itself.
 */
export const serve = (
  respond: (
    request: IncomingMessage,
    body: any,
    response: ServerResponse,
  ) => Promise<readonly [status: number, body: object] | void>,
): void => {
  const server = createServer(async (request, response) => {
    const body = request.method === "POST" ? await json(request) : undefined;
    const result = await respond(request, body, response);
    if (!result) return;
    const text = JSON.stringify(result[1]);
    response
      .writeHead(result[0], {
        "content-type": "application/json; charset=utf-8",
        "content-length": Buffer.byteLength(text),
      })
      .end(text);
  });
  server.keepAliveTimeout = 65_000;
  server.listen(Number(process.env["PORT"]), "127.0.0.1");
  process.once("SIGTERM", () => process.exit());
};
