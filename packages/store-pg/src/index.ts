/**
 * The PostgreSQL store: every port of the core that keeps something.
 */
export {
  inspectPostgres,
  layerPostgres,
  lettingInSql,
  pendingSql,
  type Inspection,
  type PostgresOptions,
} from "./Postgres.ts";
export { PostgresUnusable } from "./PostgresUnusable.ts";
