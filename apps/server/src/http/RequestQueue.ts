/**
 * The queue in which requests wait for the application. In one iteration of the event loop, Node reads from every
 * connection with unread data; if each request started as soon as it was read, those of one key would delay all others.
 * So an iteration starts requests for a millisecond only, in turn by key, and the rest wait for later iterations. If too
 * many of a key are waiting, its further POST requests are refused.
 */
import { makePlaces, type Client } from "@parley/core";
import { FairQueue, type RequestTurns } from "@parley/http";
import { Context } from "effect";
import type { IncomingMessage, ServerResponse } from "node:http";

/**
 * For how many milliseconds an iteration starts requests, and then refuses others. A request starts in 0.1 ms, but an ask
 * takes another 0.8 ms later, when its body and its answer arrive; a refusal takes 0.1 ms in all.
 */
const slice = { start: 1, refuse: 4 };

/** How many POST requests of a key may wait. A server that starts 600 asks a second needs 0.4 s for them. */
const maxWaiting = 256;

/**
 * How many valid credentials the queue remembers, and for how many keys with waiting requests any other credential counts
 * as a key. Beyond that, all others count as one key, so that made-up keys do not get most of the turns.
 */
const capacity = { credentials: 10_000, keys: 100 };

export const makeRequestQueue = () => {
  const queue = new FairQueue<() => void>();
  /** Requests that the application must refuse, in order of arrival. */
  const excess: Array<() => void> = [];
  const posts = makePlaces(Infinity);
  const clients = new Map<string, Client>();
  const excessRequests = new WeakSet<object>();
  const responses = new WeakMap<object, ServerResponse>();
  let isScheduled = false;

  const runFor = (millis: number, next: () => (() => void) | undefined): void => {
    const end = performance.now() + millis;
    for (let begin; performance.now() < end && (begin = next()) !== undefined;) begin();
  };
  const runIteration = (): void => {
    runFor(slice.start, () => queue.shift());
    runFor(slice.refuse, () => excess.shift());
    isScheduled = queue.size + excess.length > 0;
    if (isScheduled) setImmediate(runIteration);
  };

  /** Starts a request in its turn. */
  const enter = (request: IncomingMessage, response: ServerResponse, begin: () => void): void => {
    const credential = String(request.headers["x-api-key"] ?? "");
    const stranger = { apiKeyId: queue.keys < capacity.keys ? credential : "" };
    const client = clients.get(credential) ?? stranger;
    responses.set(request, response);
    if (request.method !== "POST") queue.push(client, begin);
    else if (posts.isFull(client, maxWaiting)) {
      excessRequests.add(request);
      // Discards the body: thousands of bodies of 60 kB would fill the memory.
      request.resume();
      excess.push(begin);
    } else {
      const free = posts.take(client);
      queue.push(client, () => {
        free();
        begin();
      });
    }
    if (isScheduled) return;
    isScheduled = true;
    setImmediate(runIteration);
  };

  const turns: RequestTurns = {
    isExcess: (request) => excessRequests.has(request),
    noteClient: (credential, client) => {
      if (clients.has(credential)) return;
      if (clients.size === capacity.credentials) clients.delete(clients.keys().next().value!);
      clients.set(credential, client);
    },
    whenSent: (request, then) => void responses.get(request)!.once("close", then),
  };
  return { enter, turns };
};

/** The queue of this process, which has one event loop. */
export const RequestQueue = Context.Reference("@parley/server/RequestQueue", {
  defaultValue: makeRequestQueue,
});
export type RequestQueue = typeof RequestQueue.Service;
