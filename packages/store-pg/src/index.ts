/**
 * The PostgreSQL store, which implements every storage port of the core.
 */
export { securityOf, transportOf } from "./connections/DatabaseAddress.ts";
export { PostgresUnusable } from "./connections/PgErrors.ts";
export {
  inspectPostgres,
  layerPostgres,
  migratePostgres,
  pendingSql,
  postgres,
  type Inspection,
  type PostgresSettings,
} from "./PgStore.ts";
export type { PostgresOptions } from "./PostgresOptions.ts";
