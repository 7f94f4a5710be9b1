import type { PostgresOptions } from "@parley/store-pg";
import type { UrlOf } from "./embedded/Connection.ts";
import { boundRole, ownerRole, serverRole } from "./embedded/Roles.ts";
import type { SettingsShape } from "./Settings.ts";

/** How a server connects to the operator's database, or to an embedded one by its urls. */
export const postgresOf = (
  { databaseUrl, listen, migrationUrl, prepare, rowSecurity, schema }: SettingsShape,
  embedded: UrlOf | null,
): PostgresOptions => ({
  url: embedded?.(rowSecurity ? boundRole : serverRole) ?? databaseUrl!,
  migrationUrl: embedded?.(ownerRole) ?? migrationUrl ?? undefined,
  rowSecurity,
  listen,
  prepare,
  schema,
});
