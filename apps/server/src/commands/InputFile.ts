/**
 * A file to read, or what a path leads to instead.
 */
import * as NodeStream from "@effect/platform-node/NodeStream";
import { Effect, FileSystem, PlatformError, Stream } from "effect";
import { createReadStream } from "node:fs";

/** In what is no file of a disk, such as a pipe or a terminal, no position can be sought. */
const read = (path: string) =>
  NodeStream.fromReadable<Uint8Array, PlatformError.PlatformError>({
    evaluate: () => createReadStream(path),
    onError: (cause) =>
      PlatformError.systemError({
        _tag: "Unknown",
        module: "FileSystem",
        method: "read",
        pathOrDescriptor: path,
        cause,
      }),
  });

export const readInput = (path: string) =>
  Stream.unwrap(
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem;
      const { type } = yield* files.stat(path);
      return type === "FIFO" || type === "CharacterDevice" ? read(path) : files.stream(path);
    }),
  );
