/**
 * A server in this process, whose answers keep sources.
 */
import type { AnswerPart, KeyRecord } from "@parley/core/ports";
import { toNodeHandler } from "@parley/http/node";
import { makeTestHandler, usage } from "@parley/http/test";
import { makePlayground } from "@parley/pages/playground";
import { Effect, Exit, Redacted, Scope, Stream } from "effect";
import { once } from "node:events";
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";

const sources = [
  { title: "Prices and dispatch", url: "https://shop.example/prices" },
  { title: "A leaflet in the shop" },
  { title: "A trap", url: "javascript:window.harmed=1" },
];

/** Starts a server that answers each question with three sources. The key has the given scopes. */
export const startEntryServer = async (scopes: KeyRecord["scopes"]) => {
  const scope = Scope.makeUnsafe();
  const answer = (question: string) =>
    Stream.make<ReadonlyArray<AnswerPart>>(
      { _tag: "Delta", text: `You asked: **${question.slice(0, 100)}**` },
      { _tag: "Metadata", metadata: { sources } },
      { _tag: "Usage", usage },
    );
  const { handler, key } = await Effect.runPromise(
    makeTestHandler(answer, { pages: [makePlayground()] }, undefined, { scopes }).pipe(
      Scope.provide(scope),
    ),
  );
  const server = createServer(toNodeHandler(handler));
  await once(server.listen(0, "127.0.0.1"), "listening");
  const { port } = server.address() as AddressInfo;
  return {
    origin: `http://127.0.0.1:${port}`,
    key: Redacted.value(key),
    stop: async () => {
      server.close();
      server.closeAllConnections();
      await Effect.runPromise(Scope.close(scope, Exit.void));
    },
  };
};
