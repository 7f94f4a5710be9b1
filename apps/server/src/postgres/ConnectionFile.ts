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

/** Readable by its owner alone, never half written, and removed when the scope closes. */
export const connectionFile = (dataDir: string, port: number, password: string) => {
  const file = join(dataDir, "connection.json");
  const connection = { host, port, database: "parley", user, password };
  return Effect.acquireRelease(
    Effect.tryPromise(async () => {
      await rm(`${file}.new`, { force: true });
      await writeFile(`${file}.new`, `${JSON.stringify(connection, null, 2)}\n`, { mode: 0o600 });
      await rename(`${file}.new`, file);
    }),
    () => Effect.promise(() => rm(file, { force: true }).catch(() => {})),
  );
};
