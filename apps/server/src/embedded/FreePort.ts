import { Effect } from "effect";
import { createServer, type AddressInfo } from "node:net";
import { type EmbeddedFailed, failedTo } from "./EmbeddedFailed.ts";

/** A port of 127.0.0.1 that nobody uses now. */
export const freePort: Effect.Effect<number, EmbeddedFailed> = Effect.callback((resume) => {
  const server = createServer();
  server.once("error", (cause) => resume(Effect.fail(failedTo("No port is free")(cause))));
  server.listen(0, "127.0.0.1", () => {
    const { port } = server.address() as AddressInfo;
    server.close(() => resume(Effect.succeed(port)));
  });
});
