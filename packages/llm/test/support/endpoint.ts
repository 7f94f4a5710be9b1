import { Effect } from "effect";
import { once } from "node:events";
import { createServer, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { json } from "node:stream/consumers";

interface Received {
  readonly url: string | undefined;
  readonly authorization: string | undefined;
  readonly body: unknown;
}

/** An endpoint on a loopback port that calls `respond` after reading each request. */
export const endpoint = (respond: (response: ServerResponse, request: Received) => void) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const received: Array<Received> = [];
      const server = createServer(async (request, response) => {
        const { authorization } = request.headers;
        const record = { url: request.url, authorization, body: await json(request) };
        received.push(record);
        respond(response, record);
      });
      await once(server.listen(0, "127.0.0.1"), "listening");
      const { port } = server.address() as AddressInfo;
      return { baseUrl: `http://127.0.0.1:${port}/v1`, received, server };
    }),
    ({ server }) =>
      Effect.sync(() => {
        server.close();
        server.closeAllConnections();
      }),
  );
