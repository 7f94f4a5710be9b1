/**
 * How to connect to the embedded PostgreSQL: `connection.json` beside it, for tools on this machine.
 */
import { Effect, Option, Redacted, Schema } from "effect";
import { readFile, realpath, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { failedTo } from "./EmbeddedFailed.ts";
import { isLocked } from "./Lock.ts";
import { passwordOfRole } from "./Roles.ts";

/** The owner's: what row-level security binds cannot back the tables up. */
export const Connection = Schema.Struct({
  host: Schema.String,
  port: Schema.Int,
  database: Schema.String,
  user: Schema.String,
  password: Schema.String,
});
export type Connection = typeof Connection.Type;

const file = (dataDir: string) => join(dataDir, "connection.json");

/** The url by which a role connects. */
export type UrlOf = (role: string) => Redacted.Redacted;

export const urlsOf =
  ({ database, host, password, port }: Connection): UrlOf =>
  (role) =>
    Redacted.make(
      `postgres://${role}:${encodeURIComponent(passwordOfRole(role, password))}@${host}:${port}/${database}`,
    );

export const forgetConnection = (dataDir: string) =>
  Effect.tryPromise({
    try: () => rm(file(dataDir), { force: true }),
    catch: failedTo(`PARLEY_DATA_DIR ${dataDir} cannot be written`),
  });

/** Readable by its owner alone, and never half written. */
export const writeConnection = (dataDir: string, connection: Connection) =>
  Effect.tryPromise({
    try: async () => {
      const next = `${file(dataDir)}.new`;
      await rm(next, { force: true });
      await writeFile(next, `${JSON.stringify(connection, null, 2)}\n`, { mode: 0o600 });
      await rename(next, file(dataDir));
    },
    catch: failedTo(`PARLEY_DATA_DIR ${dataDir} cannot be written`),
  });

/** The urls of the database of a server that runs on this directory now; none if no server does. */
export const runningPostgres = Effect.fnUntraced(
  function* (dataDir: string) {
    const dir = yield* Effect.tryPromise(() => realpath(dataDir));
    if (!(yield* isLocked(dir))) return Option.none<UrlOf>();
    const text = yield* Effect.tryPromise(() => readFile(file(dir), "utf8"));
    const connection = yield* Schema.decodeUnknownEffect(Schema.fromJsonString(Connection))(text);
    return Option.some(urlsOf(connection));
  },
  Effect.orElseSucceed(() => Option.none<UrlOf>()),
);
