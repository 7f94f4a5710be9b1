import type { PostgresOptions } from "@parley/store-pg";
import type { Redacted } from "effect";
import type { SettingsShape } from "./Settings.ts";

/** How a server connects to the operator's database, or to the embedded one by its url. */
export const postgresOf = (
  { connections, databaseUrl, listen, prepare, rowSecurity, schema }: SettingsShape,
  embedded: Redacted.Redacted | null,
): PostgresOptions => ({
  url: embedded ?? databaseUrl!,
  rowSecurity,
  listen,
  prepare,
  schema,
  maxConnections: connections,
});
