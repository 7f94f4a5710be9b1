import * as NodeServices from "@effect/platform-node/NodeServices";
import { Effect, FileSystem, Path } from "effect";

/** Creates a temporary folder with these files. Closing the scope removes the folder. */
export const folderOf = Effect.fnUntraced(function* (
  files: Readonly<Record<string, string | Uint8Array>>,
) {
  const fs = yield* FileSystem.FileSystem;
  const path = yield* Path.Path;
  const folder = yield* fs.makeTempDirectoryScoped({ prefix: "parley-llm-" });
  for (const [name, content] of Object.entries(files)) {
    const at = path.join(folder, name);
    yield* fs.makeDirectory(path.dirname(at), { recursive: true });
    yield* fs.writeFile(at, Buffer.from(content as string));
  }
  return folder;
}, Effect.provide(NodeServices.layer));
