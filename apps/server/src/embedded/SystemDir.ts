import { chmod, mkdir } from "node:fs/promises";

/**
 * Where a server that is root keeps what its PostgreSQL, which is not, must be able to reach. Not
 * below a directory for temporary files: those are emptied.
 */
export const systemDir = "/var/lib/parley";

export const makeSystemDir = async () => {
  const made = await mkdir(systemDir, { recursive: true, mode: 0o755 });
  // Whatever the umask says.
  if (made !== undefined) await chmod(systemDir, 0o755);
};
