import type { PostgresOptions } from "@parley/store-pg";
import type { UrlOf } from "./embedded/Connection.ts";
import { ownerRole } from "./embedded/Roles.ts";
import type { SettingsShape } from "./Settings.ts";

/** How a server connects to the operator's database, or to an embedded one by its urls. */
export const postgresOf = (
  { connections, databaseUrl, listen, prepare, rowSecurity, schema }: SettingsShape,
  embedded: UrlOf | null,
): PostgresOptions => ({
  url: embedded?.(ownerRole) ?? databaseUrl!,
  rowSecurity,
  listen,
  prepare,
  schema,
  maxConnections: connections,
});
