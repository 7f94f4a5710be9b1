import { mkdir } from "node:fs/promises";
import { dirname } from "node:path";

/**
 * Makes a directory and those above it, and says whether it was not there before.
 *
 * Node's own recursion is not used: it never ends where a directory that exists takes no new ones
 * (such as /proc), and reports a read-only file system as ENOENT.
 */
export const makeDirectory = async (dir: string): Promise<boolean> => {
  const make = () =>
    mkdir(dir, { mode: 0o755 }).then(
      () => true,
      (cause) => {
        if (cause.code === "EEXIST") return false;
        throw cause;
      },
    );
  try {
    return await make();
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code !== "ENOENT" || dirname(dir) === dir) throw cause;
    await makeDirectory(dirname(dir));
    return await make();
  }
};
