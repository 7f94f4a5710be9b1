/**
 * Debian's PgBouncer in front of PostgreSQL, in transaction mode. By default, PgBouncer rejects a client that asks
 * for settings when it connects.
 */
import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { chmod, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { freePort } from "../../apps/server/test/FreePort.ts";

const program = "/usr/sbin/pgbouncer";

/** Debian's unprivileged user: PgBouncer does not run as root. */
const nobody = 65534;

export interface PgBouncer {
  /** The database's address through PgBouncer. */
  readonly url: string;
  readonly close: () => Promise<void>;
}

export const startPgBouncer = async (url: string, settings = ""): Promise<PgBouncer> => {
  if (!existsSync(program)) throw new Error(`${program} is missing: install Debian's pgbouncer`);
  const { hostname, password, pathname, port, username } = new URL(url);
  const near = new URL(url);
  near.port = String(await freePort());
  const directory = await mkdtemp(join(tmpdir(), "parley-pgbouncer-"));
  await chmod(directory, 0o711);
  const file = join(directory, "pgbouncer.ini");
  await writeFile(
    file,
    `[databases]
${pathname.slice(1)} = host=${hostname} port=${port} user=${username} password=${decodeURIComponent(password)}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = ${near.port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
${settings}
`,
  );
  const asNobody = process.getuid?.() === 0 ? { uid: nobody, gid: nobody } : {};
  const bouncer = spawn(program, [file], {
    ...asNobody,
    cwd: directory,
    stdio: ["ignore", "ignore", "pipe"],
  });
  const exit = once(bouncer, "exit");
  let output = "";
  const up = new Promise<boolean>((resolve) => {
    bouncer.stderr.setEncoding("utf8").on("data", (text: string) => {
      output += text;
      if (output.includes("process up")) resolve(true);
    });
    void exit.then(() => resolve(false));
  });
  const close = async () => {
    bouncer.kill();
    await exit;
    await rm(directory, { recursive: true, force: true });
  };
  if (!(await up)) {
    await close();
    throw new Error(`PgBouncer did not start: ${output}`);
  }
  return { url: near.href, close };
};
