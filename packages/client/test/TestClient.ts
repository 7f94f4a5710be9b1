/**
 * A client of the test handler, with responses that a test can alter.
 */
import type { AnswerPart } from "@parley/core/ports";
import * as client from "@parley/client";
import { Effect, Exit, Redacted, Scope, Stream } from "effect";
import { makeTestHandler, usage } from "@parley/http/test";
import { onTestFinished } from "vitest";

export const pieces = ["Grüß ", "dich, ", "😀!"];
export const answer = pieces.join("");

/** Pauses between the pieces, so that each becomes a separate event. */
const slowly = (): Stream.Stream<AnswerPart> =>
  Stream.fromIterable<AnswerPart>([
    ...pieces.map((text) => ({ _tag: "Delta" as const, text })),
    { _tag: "Usage", usage },
  ]).pipe(Stream.tap(() => Effect.sleep("5 millis")));

/** Passes a response on, and cuts it off at the byte that `isEnough` returns for the bytes so far. */
export const cut = (
  response: Response,
  isEnough: (bytes: Uint8Array) => number | undefined,
): Response => {
  const reader = response.body!.getReader();
  let seen = new Uint8Array();
  const body = new ReadableStream<Uint8Array>({
    async pull(controller) {
      const { done, value } = await reader.read();
      if (done) return controller.close();
      const before = seen.length;
      seen = Uint8Array.from([...seen, ...value]);
      const end = isEnough(seen);
      controller.enqueue(end === undefined ? value : seen.slice(before, Math.max(before, end)));
      if (end === undefined) return;
      await reader.cancel();
      // The delay lets the chunk be read first, because an error discards queued chunks.
      setTimeout(() => controller.error(new TypeError("cut")), 1);
    },
    cancel: () => reader.cancel(),
  });
  return new Response(body, response);
};

export const atByte = (count: number) => (bytes: Uint8Array) =>
  bytes.length >= count ? count : undefined;

export const afterEvents = (count: number) => (bytes: Uint8Array) => {
  const ends = [...new TextDecoder().decode(bytes).matchAll(/\n\n/g)];
  return ends.length >= count ? bytes.length : undefined;
};

/** Never responds; rejects when the client hangs up. */
export const silent = (_send: unknown, _attempt: unknown, { signal }: Request): Promise<Response> =>
  new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));

/** Opens a handler over the memory store, which closes when the test has finished. */
export const openTestHandler = (...options: Parameters<typeof makeTestHandler>) => {
  const scope = Scope.makeUnsafe();
  onTestFinished(() => Effect.runPromise(Scope.close(scope, Exit.void)));
  return Effect.runPromise(Scope.provide(makeTestHandler(...options), scope));
};

export const openTestClient = async (
  options: client.ClientOptions & {
    readonly alter?: (
      send: () => Promise<Response>,
      attempt: number,
      request: Request,
    ) => Response | Promise<Response>;
  } = {},
) => {
  const { handler, key, logged } = await openTestHandler(slowly);
  const attempts: Array<client.Attempt> = [];
  const make = ({ alter = (send) => send(), ...more }: typeof options = options) => {
    let count = 0;
    return client.makeClient({
      origin: "http://parley.test",
      apiKey: Redacted.value(key),
      onAttempt: (attempt) => attempts.push(attempt),
      fetch: async (url, init) => {
        const request = new Request(url, init);
        return alter(() => handler(request.clone()), ++count, request);
      },
      ...more,
    });
  };
  return { client: make(), make, attempts, logged, key: Redacted.value(key) };
};
