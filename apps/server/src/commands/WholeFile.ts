/**
 * A file that is replaced when all of it is written, and not before.
 */
import { Effect, FileSystem, Option, Stream } from "effect";
import { writePipe } from "./Pipe.ts";

/** Writes a file whole or not at all; what is no file of a disk, such as a pipe, as it comes. */
export const writeWhole = Effect.fnUntraced(function* <E, R>(
  path: string,
  bytes: Stream.Stream<Uint8Array, E, R>,
) {
  const files = yield* FileSystem.FileSystem;
  const before = Option.getOrUndefined(yield* Effect.option(files.stat(path)));
  if (before !== undefined && before.type !== "File") {
    return yield* writePipe(path, bytes);
  }
  // Of a link the file that it leads to, if there is one.
  const target = before === undefined ? path : yield* files.realPath(path);
  // Of this run alone: one that was killed may have left its own.
  const part = `${target}.${crypto.randomUUID()}.part`;
  const mode = before === undefined ? 0o666 : before.mode & 0o777;
  yield* files.writeFile(part, new Uint8Array(), { flag: "wx", mode });
  yield* Stream.run(bytes, files.sink(part, { flag: "a" })).pipe(
    Effect.andThen(files.rename(part, target)),
    Effect.onError(() => Effect.ignore(files.remove(part))),
  );
});
