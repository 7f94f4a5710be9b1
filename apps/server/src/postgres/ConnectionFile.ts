/**
 * `connection.json` in the data directory: the address of the embedded database, for tools on this machine.
 */
import { Effect, Redacted } from "effect";
import { rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";

const user = "parley";
const host = "127.0.0.1";

export const urlOf = (port: number, password: string, database = "parley") =>
  Redacted.make(`postgres://${user}:${password}@${host}:${port}/${database}`);

const file = (dataDir: string) => join(dataDir, "connection.json");

export const removeConnectionFile = (dataDir: string) =>
  Effect.promise(() => rm(file(dataDir), { force: true }).catch(() => {}));

/** Readable by its owner alone, never half written, and gone when the scope closes. */
export const connectionFile = (dataDir: string, port: number, password: string) =>
  Effect.acquireRelease(
    Effect.tryPromise(async () => {
      const next = `${file(dataDir)}.new`;
      await rm(next, { force: true });
      const connection = { host, port, database: "parley", user, password };
      await writeFile(next, `${JSON.stringify(connection, null, 2)}\n`, { mode: 0o600 });
      await rename(next, file(dataDir));
    }),
    () => removeConnectionFile(dataDir),
  );
