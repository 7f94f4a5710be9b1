/**
 * The chat so far, read as far as somebody wants it and no entry twice.
 */
import type { Entry, StorageUnavailable } from "@parley/core";
import { Effect, type Scope, Stream } from "effect";

export interface History {
  /** The newest entries, newest first, up to the first that does not `fit`. Can be asked again. */
  readonly newestThat: (
    fit: (entry: Entry) => boolean,
  ) => Effect.Effect<ReadonlyArray<Entry>, StorageUnavailable>;
}

/** @param earlier newest first; pulled only when an entry is wanted that was not read before */
export const makeHistory = (
  earlier: Stream.Stream<Entry, StorageUnavailable>,
): Effect.Effect<History, never, Scope.Scope> =>
  Effect.map(Stream.toPull(earlier), (pull) => {
    const read: Array<Entry> = [];
    const more = pull.pipe(
      Effect.map((entries) => {
        read.push(...entries);
        return true;
      }),
      Effect.catchTag("Done", () => Effect.succeed(false)),
    );
    return {
      newestThat: (fit) =>
        Effect.gen(function* () {
          for (let n = 0; ; n++) {
            if (n === read.length && !(yield* more)) return read.slice(0, n);
            if (!fit(read[n]!)) return read.slice(0, n);
          }
        }),
    };
  });
