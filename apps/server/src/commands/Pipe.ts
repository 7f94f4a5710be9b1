/**
 * What a path leads to that is no file of a disk, such as a pipe or a terminal: no position can be sought in it.
 */
import * as NodeSink from "@effect/platform-node/NodeSink";
import * as NodeStream from "@effect/platform-node/NodeStream";
import { Effect, PlatformError, Stream } from "effect";
import { createReadStream, createWriteStream } from "node:fs";
import { finished } from "node:stream";

const failed = (method: "read" | "write", pathOrDescriptor: string) => (cause: unknown) =>
  PlatformError.systemError({
    _tag: "Unknown",
    module: "FileSystem",
    method,
    pathOrDescriptor,
    cause,
  });

export const readPipe = (path: string) =>
  NodeStream.fromReadable<Uint8Array, PlatformError.PlatformError>({
    evaluate: () => createReadStream(path),
    onError: failed("read", path),
  });

/** Who is interrupted does not wait for the other end. */
export const writePipe = <E, R>(path: string, bytes: Stream.Stream<Uint8Array, E, R>) =>
  Effect.acquireUseRelease(
    Effect.sync(() => createWriteStream(path, { flags: "a" })),
    (pipe) => {
      const onError = failed("write", path);
      const sink = NodeSink.fromWritable({ evaluate: () => pipe, onError, endOnDone: false });
      const ended = Effect.callback<void, PlatformError.PlatformError>((resume) => {
        finished(pipe, (error) => resume(error ? Effect.fail(onError(error)) : Effect.void));
        pipe.end();
      });
      return Effect.andThen(Stream.run(bytes, sink), ended);
    },
    (pipe) => Effect.sync(() => pipe.destroy()),
  );
