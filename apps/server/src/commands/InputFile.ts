import { Effect, FileSystem, Stream } from "effect";
import { readPipe } from "./Pipe.ts";

/** The bytes of a file, or what comes out of a pipe. */
export const readInput = (path: string) =>
  Stream.unwrap(
    Effect.gen(function* () {
      const files = yield* FileSystem.FileSystem;
      const { type } = yield* files.stat(path);
      return type === "FIFO" || type === "CharacterDevice" ? readPipe(path) : files.stream(path);
    }),
  );
