/**
 * The roles of the embedded database. One owns the tables and migrates them. A server connects as one of
 * two others: row-level security binds the second, and lets the first into all tenants.
 */
import { Effect } from "effect";
import { createHmac } from "node:crypto";
import { chmod, readFile, rename, writeFile } from "node:fs/promises";
import { failedTo } from "./EmbeddedFailed.ts";
import { accessOf, dataOf } from "./Home.ts";
import { stopOrphans } from "./Orphans.ts";
import type { Where } from "./Postmaster.ts";
import { singleUser } from "./SingleUser.ts";

export const ownerRole = "parley";
export const serverRole = "parley_server";
export const boundRole = "parley_bound";

export interface RoleOptions {
  /** Lets the owner create further databases, as tests do. */
  readonly createDatabases?: boolean;
  /** Further roles and their attributes, as tests need. */
  readonly roles?: Readonly<Record<string, string>>;
}

/** A role's password. From the others' nobody can tell the owner's, which is the secret itself. */
export const passwordOfRole = (role: string, secret: string): string =>
  role === ownerRole ? secret : createHmac("sha256", secret).update(role).digest("base64url");

const wantedRoles = ({ createDatabases = false, roles = {} }: RoleOptions) => ({
  [ownerRole]: createDatabases ? "CREATEDB" : "",
  [serverRole]: "",
  [boundRole]: "",
  ...roles,
});

/** Who may connect: `pg_hba.conf`. */
export const accessFor = (options: RoleOptions): string =>
  `host all ${Object.keys(wantedRoles(options)).join(",")} 127.0.0.1/32 scram-sha-256\n`;

/** The statements that make the roles, each on one line; it does no harm to run them again. */
export const roleStatements = (secret: string, options: RoleOptions): ReadonlyArray<string> =>
  Object.entries(wantedRoles(options)).flatMap(([role, attributes]) => [
    `DO $$ BEGIN IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = '${role}') THEN CREATE ROLE ${role}; END IF; END $$`,
    `ALTER ROLE ${role} LOGIN ${attributes} PASSWORD '${passwordOfRole(role, secret)}'`,
  ]);

/** Makes the roles that a cluster of an earlier version lacks; nothing may run on it. */
export const makeMissingRoles = Effect.fnUntraced(function* (
  { binaries, home, runAs }: Where,
  secret: string,
  options: RoleOptions,
) {
  const file = accessOf(home);
  const found = yield* Effect.promise(() => readFile(file, "utf8").catch(() => ""));
  if (found === accessFor(options)) return;
  yield* stopOrphans(dataOf(home));
  yield* singleUser(
    "The roles of the database could not be made",
    { binaries, data: dataOf(home), runAs },
    roleStatements(secret, options),
  );
  // Last: it tells the next start that they are there.
  yield* Effect.tryPromise({
    try: async () => {
      await writeFile(`${file}.new`, accessFor(options));
      await chmod(`${file}.new`, 0o644);
      await rename(`${file}.new`, file);
    },
    catch: failedTo(`${file} cannot be written`),
  });
});
