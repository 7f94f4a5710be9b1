import type { PostgresOptions } from "@parley/store-pg";
import type { Redacted } from "effect";
import type { SettingsShape } from "./Settings.ts";

/** How a server connects to the operator's database, or to the embedded one by its url. */
export const postgresOf = (
  { databaseUrl, listen, migrationUrl, prepare, rowSecurity, schema }: SettingsShape,
  embedded: Redacted.Redacted | null,
): PostgresOptions => ({
  url: embedded ?? databaseUrl!,
  migrationUrl: embedded === null ? (migrationUrl ?? undefined) : undefined,
  rowSecurity,
  listen,
  prepare,
  schema,
});
