/**
 * A file that is replaced when all of it is written, and not before.
 */
import { Effect, FileSystem, Option, Stream } from "effect";

/** Writes a file whole or not at all; what is no file of a disk, such as a pipe, as it comes. */
export const writeWhole = Effect.fnUntraced(function* <E, R>(
  path: string,
  bytes: Stream.Stream<Uint8Array, E, R>,
) {
  const files = yield* FileSystem.FileSystem;
  const before = Option.getOrUndefined(yield* Effect.option(files.stat(path)));
  if (before !== undefined && before.type !== "File") {
    return yield* Stream.run(bytes, files.sink(path));
  }
  // Of a link the file that it leads to.
  const target = before === undefined ? path : yield* files.realPath(path);
  const part = `${target}.part`;
  yield* Stream.run(bytes, files.sink(part)).pipe(
    Effect.andThen(before === undefined ? Effect.void : files.chmod(part, before.mode & 0o777)),
    Effect.andThen(files.rename(part, target)),
    Effect.onError(() => Effect.ignore(files.remove(part))),
  );
});
