/**
 * A new cluster: UTF8, sorted by code point, its roles, and a database `parley`. Its superuser cannot log in at all.
 */
import { Effect } from "effect";
import { randomBytes } from "node:crypto";
import { chmod, chown, mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import type { Binaries } from "./Binaries.ts";
import { EmbeddedFailed, failedTo } from "./EmbeddedFailed.ts";
import { accessOf, dataOf, type NewHome, newHome, passwordOf } from "./Home.ts";
import type { RunAs } from "./OsUser.ts";
import { accessFor, ownerRole, roleStatements, type RoleOptions } from "./Roles.ts";
import { run } from "./Run.ts";
import { must, singleUser } from "./SingleUser.ts";

/** Makes the cluster and gives its home. Interrupted, it leaves nothing that a later start uses. */
export const createCluster = Effect.fnUntraced(function* (
  dataDir: string,
  binaries: Binaries,
  runAs: RunAs,
  options: RoleOptions,
) {
  const home = yield* newHome(dataDir, runAs);
  return yield* fill(home, binaries, runAs, options).pipe(
    Effect.andThen(home.commit),
    Effect.onError(() =>
      Effect.promise(() => rm(home.dir, { recursive: true, force: true }).catch(() => {})),
    ),
  );
});

const fill = Effect.fnUntraced(function* (
  { dir }: NewHome,
  binaries: Binaries,
  runAs: RunAs,
  options: RoleOptions,
) {
  const data = dataOf(dir);
  const password = randomBytes(24).toString("base64url");
  yield* Effect.tryPromise({
    try: async () => {
      await mkdir(data, { mode: 0o700 });
      if (runAs !== null) await chown(data, runAs.uid, runAs.gid);
      await writeFile(passwordOf(dir), password, { mode: 0o600 });
      await writeFile(accessOf(dir), accessFor(options));
      await chmod(accessOf(dir), 0o644);
    },
    catch: failedTo(`A new database cannot be made in ${dir}`),
  });
  // What a letter is decides what searches find in their index; without such a locale, ASCII's alone are.
  const initdb = (characterType: string) =>
    must(
      "initdb failed",
      binaries.initdb,
      [
        `--pgdata=${data}`,
        "--encoding=UTF8",
        "--locale=C",
        `--lc-ctype=${characterType}`,
        "--username=postgres",
        "--auth=reject",
      ],
      { runAs },
    );
  const isUnknown = ({ message }: EmbeddedFailed) => message.includes("invalid locale name");
  yield* initdb("C.UTF-8").pipe(
    Effect.catchIf(isUnknown, () => initdb("en_US.UTF-8")),
    Effect.catchIf(isUnknown, () =>
      Effect.andThen(
        Effect.logWarning(
          "This system has neither C.UTF-8 nor en_US.UTF-8: searches for words that are not of ASCII letters will read all names",
        ),
        initdb("C"),
      ),
    ),
  );
  yield* singleUser("The database parley could not be created", { binaries, data, runAs }, [
    ...roleStatements(password, options),
    `CREATE DATABASE parley OWNER ${ownerRole}`,
  ]);
});

export const readPassword = (home: string) =>
  Effect.tryPromise({
    try: () => readFile(passwordOf(home), "utf8"),
    catch: failedTo(`The password of the database cannot be read`),
  });

/** Fails if the cluster is of another major version than the programs. */
export const checkVersion = Effect.fnUntraced(function* (home: string, binaries: Binaries) {
  const file = join(dataOf(home), "PG_VERSION");
  const has = yield* Effect.tryPromise({
    try: () => readFile(file, "utf8"),
    catch: failedTo(`The database cannot be read`),
  });
  const { output } = yield* run(binaries.postgres, ["--version"], { runAs: null });
  const needs = /(\d+)[.\d]*\s*$/.exec(output.trim())?.[1];
  if (has.trim() === needs) return;
  return yield* new EmbeddedFailed({
    message: `The database in ${home} is of PostgreSQL ${has.trim()}, but this is PostgreSQL ${needs}: dump it with the former, and restore it into a new PARLEY_DATA_DIR.`,
  });
});
