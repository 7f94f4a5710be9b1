/** The few calls that reading documents needs, over real files. */
import * as nodeFs from "node:fs/promises";
import { tmpdir } from "node:os";
import * as nodePath from "node:path";
import { ByteSize, Effect, FileSystem, Layer, Option, Path, PlatformError } from "effect";

const attempt = <A>(method: string, path: string, run: () => Promise<A>) =>
  Effect.tryPromise({
    try: run,
    catch: (cause) =>
      PlatformError.systemError({
        _tag: (cause as NodeJS.ErrnoException).code === "ENOENT" ? "NotFound" : "PermissionDenied",
        module: "FileSystem",
        method,
        pathOrDescriptor: path,
        cause,
      }),
  });

export const layerFiles: Layer.Layer<FileSystem.FileSystem | Path.Path> = Layer.merge(
  Path.layer,
  FileSystem.layerNoop({
    realPath: (path) => attempt("realPath", path, () => nodeFs.realpath(path)),
    readDirectory: (path) => attempt("readDirectory", path, () => nodeFs.readdir(path)),
    readFile: (path) => attempt("readFile", path, () => nodeFs.readFile(path)),
    stat: (path) =>
      attempt("stat", path, () => nodeFs.stat(path)).pipe(
        Effect.map((stat): FileSystem.File.Info => ({
          type: stat.isFile() ? "File" : stat.isDirectory() ? "Directory" : "Unknown",
          size: ByteSize.bytes(stat.size),
          mode: stat.mode,
          dev: BigInt(stat.dev),
          mtime: Option.none(),
          atime: Option.none(),
          birthtime: Option.none(),
          ino: Option.none(),
          nlink: Option.none(),
          uid: Option.none(),
          gid: Option.none(),
          rdev: Option.none(),
          blksize: Option.none(),
          blocks: Option.none(),
        })),
      ),
  }),
);

/** A folder with these files, removed with its scope. */
export const folderOf = (files: Readonly<Record<string, string | Uint8Array>>) =>
  Effect.acquireRelease(
    Effect.promise(async () => {
      const folder = await nodeFs.mkdtemp(nodePath.join(tmpdir(), "parley-llm-"));
      for (const [name, content] of Object.entries(files)) {
        const path = nodePath.join(folder, name);
        await nodeFs.mkdir(nodePath.dirname(path), { recursive: true });
        await nodeFs.writeFile(path, content);
      }
      return folder;
    }),
    (folder) => Effect.promise(() => nodeFs.rm(folder, { recursive: true, force: true })),
  );
