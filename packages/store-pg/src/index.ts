/**
 * The PostgreSQL store, which implements every storage port of the core.
 */
export { securityOf, transportOf } from "./database/DatabaseAddress.ts";
export { PostgresUnusable } from "./database/PgErrors.ts";
export {
  inspectPostgres,
  layerPostgres,
  migratePostgres,
  pendingSql,
  postgres,
  type Inspection,
  type PostgresOptions,
  type PostgresSettings,
} from "./PgStore.ts";
