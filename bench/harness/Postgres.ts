/**
 * A throwaway PostgreSQL with the binaries of the tests, a new data directory and a free port. Its
 * settings are PostgreSQL's defaults, including those for durability, except that its shared buffers are larger
 * and its checkpoints are so rare that none falls within a round.
 */
import pg from "pg";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createCluster, startCluster } from "../../test/PostgresCluster.ts";
import { afterAll, stopAtEnd } from "./Children.ts";

export interface Postgres {
  readonly pid: number;
  readonly version: string;
  /** Creates a database whose name begins with `prefix`; returns its URL. */
  readonly createDatabase: (prefix: string) => Promise<string>;
  readonly run: (databaseUrl: string, statement: string, values?: Array<unknown>) => Promise<void>;
  /** Writes out all dirty pages, so that one round's pages do not slow down the next round. */
  readonly checkpoint: () => Promise<void>;
  /** Does now what autovacuum would do at an unpredictable time. */
  readonly settle: () => Promise<void>;
}

export const startPostgres = async (): Promise<Postgres> => {
  const directory = mkdtempSync(join(tmpdir(), "parley-bench-"));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  const cluster = await createCluster(directory, {
    shared_buffers: "512MB",
    max_wal_size: "8GB",
    checkpoint_timeout: "1h",
  });
  const { pid, stop } = await startCluster(cluster);
  stopAtEnd(stop);
  const { urlOf: url } = cluster;
  const urls: Array<string> = [];
  const admin = await connectTo(url("postgres"));
  const { rows } = await admin.query<{ server_version: string }>("SHOW server_version");
  return {
    pid,
    version: rows[0]!.server_version,
    createDatabase: async (prefix) => {
      const name = `${prefix}_${urls.length + 1}`;
      urls.push(url(name));
      await admin.query(`CREATE DATABASE ${pg.escapeIdentifier(name)}`);
      return url(name);
    },
    run: query,
    checkpoint: async () => void (await admin.query("CHECKPOINT")),
    settle: async () => {
      for (const databaseUrl of urls) await query(databaseUrl, "VACUUM (ANALYZE)");
    },
  };
};

const connectTo = async (connectionString: string): Promise<pg.Client> => {
  const client = new pg.Client({ connectionString });
  // At the end of the run, PostgreSQL is stopped while this connection is open.
  client.on("error", () => {});
  await client.connect();
  return client;
};

const query = async (databaseUrl: string, text: string, values?: Array<unknown>): Promise<void> => {
  const client = await connectTo(databaseUrl);
  try {
    await client.query(text, values);
  } finally {
    await client.end();
  }
};
