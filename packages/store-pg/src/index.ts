/**
 * The PostgreSQL store: implements every port of the core that stores something.
 */
export { PostgresUnusable } from "./database/PgErrors.ts";
export {
  inspectPostgres,
  layerPostgres,
  migratePostgres,
  pendingSql,
  type Inspection,
  type PostgresOptions,
} from "./PgStore.ts";
