/**
 * The queue in which requests wait for the application. In one iteration of the event loop, Node reads from every
 * connection with unread data; if each request started as soon as it was read, those of one key would delay all others.
 */
import { makePlaces, type Client } from "@parley/core/ports";
import { FairQueue, type RequestTurns } from "@parley/http";
import { Context } from "effect";
import type { IncomingMessage, ServerResponse } from "node:http";

/**
 * For how many milliseconds an iteration starts requests, and then refuses others. A request starts in 0.1 ms, but an
 * ask takes another 0.8 ms later, when its body and its answer arrive; a refusal takes 0.1 ms in all. If a client is
 * alone, more are started at once: their statements and responses are sent together, and an ask costs a seventh less.
 */
const slice = { start: 0.5, startAlone: 2, refuse: 2 };

/**
 * A client counts as alone after this many milliseconds in which no other client has sent a credential. Probes and
 * pages, which need none, make no difference.
 */
const aloneAfter = 5_000;

/**
 * How many POST requests of a key may wait: at 600 asks a second, for 0.4 s. Further ones are refused. Their bodies are
 * discarded if they have more bytes than `body`: a thousand bodies of 64 kB would take 64 MB.
 */
const waiting = { posts: 256, body: 4_096 };

/**
 * How many valid credentials are known, and up to how many keys with waiting requests an unknown one counts as a key.
 * Beyond that, all unknown ones count as one key, so that made-up keys do not get most of the turns.
 */
const capacity = { credentials: 10_000, keys: 100 };

interface QueuedRequest extends IncomingMessage {
  isExcess?: boolean;
  response?: ServerResponse;
}

export const makeRequestQueue = () => {
  const queue = new FairQueue<() => void>();
  const excess: Array<() => void> = [];
  const posts = makePlaces(Infinity);
  const clients = new Map<string, Client>();
  let isScheduled = false;
  let lastCredential: string | undefined;
  let lastChangeAt = 0;

  const runFor = (millis: number, next: () => (() => void) | undefined): void => {
    const end = performance.now() + millis;
    for (let begin; performance.now() < end && (begin = next()) !== undefined;) begin();
  };
  const runIteration = (): void => {
    const isAlone = performance.now() - lastChangeAt > aloneAfter;
    runFor(isAlone ? slice.startAlone : slice.start, () => queue.shift());
    runFor(slice.refuse, () => excess.shift());
    isScheduled = queue.keys + excess.length > 0;
    if (isScheduled) setImmediate(runIteration);
  };
  const push = (client: Client, request: QueuedRequest, begin: () => void): void => {
    if (request.method !== "POST") return queue.push(client, begin);
    request.isExcess = posts.isFull(client, waiting.posts);
    if (request.isExcess) {
      if (!(Number(request.headers["content-length"]) <= waiting.body)) request.resume();
      return void excess.push(begin);
    }
    const free = posts.take(client);
    queue.push(client, () => (free(), begin()));
  };

  /** Starts a request in its turn: at once if it is the first of an iteration in which none is waiting. */
  const enter = (request: QueuedRequest, response: ServerResponse, begin: () => void): void => {
    const credential = String(request.headers["x-api-key"] ?? "");
    if (credential !== "" && credential !== lastCredential) {
      lastCredential = credential;
      lastChangeAt = performance.now();
    }
    const stranger = { apiKeyId: queue.keys < capacity.keys ? credential : "" };
    request.response = response;
    push(clients.get(credential) ?? stranger, request, begin);
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(runIteration);
    queue.shift()?.();
  };

  const turns: RequestTurns = {
    isExcess: (request) => (request as QueuedRequest).isExcess === true,
    noteClient: (credential, { apiKeyId, visitor }) => {
      if (clients.has(credential)) return;
      if (clients.size === capacity.credentials) clients.delete(clients.keys().next().value!);
      clients.set(credential, { apiKeyId, visitor });
    },
    whenSent: (request, then) => void (request as QueuedRequest).response!.once("close", then),
  };
  return { enter, turns };
};

/** The queue of this process, which has one event loop. */
export const RequestQueue = Context.Reference("@parley/server/RequestQueue", {
  defaultValue: makeRequestQueue,
});
export type RequestQueue = typeof RequestQueue.Service;
