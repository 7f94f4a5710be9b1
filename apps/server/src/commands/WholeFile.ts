/**
 * A file that is replaced when all of it is written, and not before.
 */
import { Effect, FileSystem, Stream } from "effect";
import { wrongUsage } from "./WrongUsage.ts";

export const writeWhole = Effect.fnUntraced(function* <E, R>(
  path: string,
  bytes: Stream.Stream<Uint8Array, E, R>,
) {
  const files = yield* FileSystem.FileSystem;
  // The target of a link is replaced, not the link.
  const target = yield* Effect.orElseSucceed(files.realPath(path), () => path);
  const before = yield* Effect.orElseSucceed(files.stat(target), () => null);
  // To rename a file onto a device would replace the device.
  if (before !== null && before.type !== "File") {
    return yield* wrongUsage(["chats", "export"], `${path} is no file.`);
  }
  const part = `${target}.${crypto.randomUUID()}.part`;
  // As closed to other users as the file that it replaces.
  const mode = before === null ? 0o666 : before.mode & 0o777;
  yield* files.writeFile(part, new Uint8Array(), { flag: "wx", mode });
  yield* Stream.run(bytes, files.sink(part, { flag: "a" })).pipe(
    Effect.andThen(files.rename(part, target)),
    Effect.onError(() => Effect.ignore(files.remove(part))),
  );
});
