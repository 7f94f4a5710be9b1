/**
 * Folders of documents, each read when it is first wanted, and again at every SIGHUP.
 */
import { readKnowledge } from "@parley/llm";
import { Cache, Duration, Effect, Exit, Queue, Stream } from "effect";

const hangups = Stream.callback<void>((queue) =>
  Effect.acquireRelease(
    Effect.sync(() => {
      const tell = () => Queue.offerUnsafe(queue, undefined);
      process.on("SIGHUP", tell);
      return tell;
    }),
    (tell) => Effect.sync(() => process.off("SIGHUP", tell)),
  ),
);

/** Gives what was read of a folder last. */
export const makeDocuments = Effect.gen(function* () {
  const read = yield* Cache.makeWith(readKnowledge, {
    capacity: 10_000,
    timeToLive: (exit) => (Exit.isSuccess(exit) ? Duration.infinity : Duration.zero),
  });
  const readAgain = (folder: string) =>
    readKnowledge(folder).pipe(
      Effect.flatMap((knowledge) => Cache.set(read, folder, knowledge)),
      // What was read before stays in use.
      Effect.catch((error) => Effect.logError(error.message)),
    );
  yield* Stream.runForEach(hangups, () =>
    Cache.keys(read).pipe(
      Effect.flatMap((folders) => Effect.forEach(folders, readAgain, { discard: true })),
      Effect.andThen(Effect.logInfo("The documents were read again")),
    ),
  ).pipe(Effect.forkScoped({ startImmediately: true }));
  return (folder: string) => Cache.get(read, folder);
});
