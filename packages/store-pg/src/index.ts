/**
 * The PostgreSQL store: every port of the core that keeps something, over one pool of pipelined
 * connections and one that listens.
 */
export { layerPostgres, PostgresUnusable, type PostgresOptions } from "./Postgres.ts";
