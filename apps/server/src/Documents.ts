/**
 * Folders of documents, each read when it is first wanted, and again when that is asked for.
 */
import { readKnowledge } from "@parley/llm";
import { Cache, Duration, Effect, Exit, Stream } from "effect";

/**
 * Gives what was read of a folder last.
 *
 * @param again asks for all of them to be read again
 */
export const makeDocuments = Effect.fnUntraced(function* (again: Stream.Stream<void>) {
  const read = yield* Cache.makeWith(readKnowledge, {
    capacity: 10_000,
    timeToLive: (exit) => (Exit.isSuccess(exit) ? Duration.infinity : Duration.zero),
  });
  /** Whether it could be read. If not, what was read before stays in use. */
  const readAgain = (folder: string) =>
    readKnowledge(folder).pipe(
      Effect.flatMap((knowledge) => Cache.set(read, folder, knowledge)),
      Effect.as(true),
      Effect.catch((error) => Effect.as(Effect.logError(error.message), false)),
      Effect.catchCause((cause) =>
        Effect.as(Effect.logError(`The documents in ${folder} met a defect`, cause), false),
      ),
    );
  const readAllAgain = Effect.gen(function* () {
    const results = yield* Effect.forEach(yield* Cache.keys(read), readAgain);
    const failed = results.filter((succeeded) => !succeeded).length;
    if (failed === 0) return yield* Effect.logInfo("The documents were read again");
    yield* Effect.logWarning(
      `Of ${results.length} folders of documents ${failed} could not be read again; what was read of them before stays in use`,
    );
  });
  yield* Stream.runForEach(again, () => readAllAgain).pipe(
    Effect.forkScoped({ startImmediately: true }),
  );
  return (folder: string) => Cache.get(read, folder);
});
