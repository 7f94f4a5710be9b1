/**
 * The operating system's user that PostgreSQL runs as. PostgreSQL refuses to run as root, so a
 * server that is root runs it as somebody else.
 */
import { Effect } from "effect";
import { stat } from "node:fs/promises";
import { EmbeddedFailed } from "./EmbeddedFailed.ts";
import { run } from "./Run.ts";

export interface OsUser {
  readonly uid: number;
  readonly gid: number;
}

/** `null`: PostgreSQL runs as the user that this process already is. */
export type RunAs = OsUser | null;

export const isRoot = () => process.getuid?.() === 0;

const idOf = (flag: "-u" | "-g", name: string) =>
  run("id", [flag, name], { runAs: null }).pipe(
    Effect.map(({ code, output }) => (code === 0 ? Number(output.trim()) : Number.NaN)),
    Effect.orElseSucceed(() => Number.NaN),
  );

/** Who is to own a new cluster. */
export const newOwner: Effect.Effect<RunAs, EmbeddedFailed> = Effect.gen(function* () {
  if (!isRoot()) return null;
  for (const name of ["postgres", "nobody"]) {
    const uid = yield* idOf("-u", name);
    const gid = yield* idOf("-g", name);
    if (!(uid > 0 && gid > 0)) continue;
    const runAs: OsUser = { uid, gid };
    // A container can forbid even root to become another user.
    return yield* run("/bin/sh", ["-c", ":"], { runAs }).pipe(
      Effect.as(runAs),
      Effect.mapError(
        ({ message }) =>
          new EmbeddedFailed({
            message: `PostgreSQL does not run as root, and cannot be run as ${name} here (${message}): start the server as an ordinary user, or set DATABASE_URL.`,
          }),
      ),
    );
  }
  return yield* new EmbeddedFailed({
    message:
      "PostgreSQL does not run as root, and this system has no user named postgres or nobody: " +
      "start the server as an ordinary user, or set DATABASE_URL.",
  });
});

/** Who owns the cluster at `data`: only its owner can run it. */
export const ownerOf = Effect.fnUntraced(function* (data: string) {
  const { uid, gid } = yield* Effect.tryPromise({
    try: () => stat(data),
    catch: (cause) =>
      new EmbeddedFailed({
        message: `The database in ${data} cannot be read (${(cause as NodeJS.ErrnoException).code}): restore it, or name another PARLEY_DATA_DIR.`,
      }),
  });
  if (isRoot()) return { uid, gid } as RunAs;
  if (uid === process.getuid?.()) return null;
  return yield* new EmbeddedFailed({
    message: `The database in ${data} belongs to the user with id ${uid}: start the server as that user, or name another PARLEY_DATA_DIR.`,
  });
});
