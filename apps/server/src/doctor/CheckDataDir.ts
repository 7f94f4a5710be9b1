/**
 * Whether the data directory of the embedded database can be written, and has room.
 */
import { Effect } from "effect";
import { access, mkdtemp, rm, statfs } from "node:fs/promises";
import { dirname, join, resolve } from "node:path";
import { Settings } from "../Settings.ts";
import { failed, ok, warning } from "./Finding.ts";

const scarce = 1024 ** 3;

/** The directory itself, or the nearest above it that exists. */
const existing = async (path: string): Promise<string> => {
  try {
    await access(path);
    return path;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
    return existing(dirname(path));
  }
};

/** How many bytes are free where the path is or would be made; rejects if nothing can be made there. */
const room = async (path: string): Promise<number> => {
  const directory = await existing(path);
  await rm(await mkdtemp(join(directory, ".parley-doctor-")), { recursive: true });
  const { bavail, bsize } = await statfs(directory);
  return bavail * bsize;
};

export const checkDataDir = Effect.gen(function* () {
  const { dataDir, store } = yield* Settings;
  if (store !== "embedded") return [];
  const path = resolve(dataDir);
  return yield* Effect.tryPromise(() => room(path)).pipe(
    Effect.map((free) =>
      free < scarce
        ? warning(
            "data directory",
            `${path} can be written, but only ${Math.floor(free / 1024 ** 2)} MiB are free.`,
            "Make room there, or name another directory with PARLEY_DATA_DIR.",
          )
        : ok("data directory", `${path} can be written.`),
    ),
    Effect.catch(({ cause }) => {
      const { code } = cause as NodeJS.ErrnoException;
      return Effect.succeed(
        failed(
          "data directory",
          `${path} cannot be written (${code}).`,
          "Name another directory with PARLEY_DATA_DIR, or let this user write there.",
        ),
      );
    }),
    Effect.map((finding) => [finding]),
  );
});
