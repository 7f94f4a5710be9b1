/**
 * The SIGHUPs that the process gets. Whoever runs this takes from them that they end the process.
 */
import { Effect, Queue, Stream } from "effect";

/** Those that come while one is worked on are one. */
export const hangups: Stream.Stream<void> = Stream.callback<void>(
  (queue) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const tell = () => Queue.offerUnsafe(queue, undefined);
        process.on("SIGHUP", tell);
        return tell;
      }),
      (tell) => Effect.sync(() => process.off("SIGHUP", tell)),
    ),
  { bufferSize: 1, strategy: "sliding" },
);
