/**
 * The PostgreSQL store: every port of the core that keeps something.
 */
export {
  inspectPostgres,
  layerPostgres,
  migratePostgres,
  pendingSql,
  type Inspection,
  type PostgresOptions,
} from "./PgStore.ts";
export { PostgresUnusable } from "./PostgresUnusable.ts";
