import { Effect } from "effect";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";

interface Received {
  readonly url: string | undefined;
  readonly authorization: string | undefined;
  readonly body: unknown;
}

/** An endpoint on a loopback port, which calls `respond` after it has read a request. */
export const endpoint = (respond: (response: ServerResponse) => void) =>
  Effect.acquireRelease(
    Effect.callback<{
      readonly baseUrl: string;
      readonly received: Array<Received>;
      stop: () => void;
    }>((resume) => {
      const received: Array<Received> = [];
      const server = createServer(async (request: IncomingMessage, response) => {
        let text = "";
        for await (const chunk of request) text += chunk;
        const { authorization } = request.headers;
        received.push({ url: request.url, authorization, body: JSON.parse(text) });
        respond(response);
      });
      server.listen(0, "127.0.0.1", () => {
        const { port } = server.address() as AddressInfo;
        const stop = () => {
          server.closeAllConnections();
          server.close();
        };
        resume(Effect.succeed({ baseUrl: `http://127.0.0.1:${port}/v1`, received, stop }));
      });
    }),
    ({ stop }) => Effect.sync(stop),
  );
