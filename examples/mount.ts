import { defaultSettings, keyRecord, layerParley } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import { makeWebHandler } from "@parley/http";
import { layerMemory } from "@parley/store-memory";
import { Effect, Layer } from "effect";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { Readable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ReadableStream } from "node:stream/web";

const apiKey = process.env["API_KEY"]!; // of `pnpm --silent parley key generate`

/** Puts one chatbot and its key into the store, unless an earlier start did. */
const register = Layer.effectDiscard(
  Effect.gen(function* () {
    const registry = yield* ChatbotRegistry;
    const helpdesk = {
      workspaceName: "Acme",
      name: "Helpdesk",
      description: "",
      settings: { ...defaultSettings, helloMessage: "Hello!" },
      keys: [yield* keyRecord(apiKey)],
    };
    yield* Effect.catchTag(
      registry.create(helpdesk, "my service"),
      "ChatbotTaken",
      () => Effect.void,
    );
  }),
);

const { handler, ready } = makeWebHandler(
  register.pipe(
    Layer.provideMerge(
      layerParley({
        store: layerMemory,
        answerer: ({ question }) => `You asked: ${question}`,
      }),
    ),
  ),
  { basePaths: { general: "/chatbot", answers: "/chatbot-ask" } },
);

/** Hands a request of node:http over. A hang-up reaches the handler as the request's signal. */
const listener = async (request: IncomingMessage, response: ServerResponse) => {
  const hangUp = new AbortController();
  response.once("close", () => hangUp.abort());
  const { headers, method = "GET", url = "/" } = request;
  try {
    const answer = await handler(
      new Request(`http://localhost${url}`, {
        method,
        headers: Object.entries(headers as Record<string, string>),
        signal: hangUp.signal,
        ...(method !== "GET" &&
          method !== "HEAD" && { body: Readable.toWeb(request) as BodyInit, duplex: "half" }),
      }),
    );
    response.writeHead(answer.status, Object.fromEntries(answer.headers));
    if (answer.body === null) response.end();
    else await pipeline(Readable.fromWeb(answer.body as ReadableStream), response);
  } catch (error) {
    if (!hangUp.signal.aborted) console.error(error);
    response.destroy();
  }
};

await ready; // or the process ends with what the layer failed with
const server = createServer(listener).listen(Number(process.env["PORT"] ?? 8080), () => {
  console.log(`http://localhost:${(server.address() as AddressInfo).port}/chatbot`);
});
