/**
 * The PostgreSQL store: every port of the core that keeps something, over one pool of pipelined
 * connections and one that listens.
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
