import { existsSync } from "node:fs";
import { join } from "node:path";
import { root } from "../../test/docs/Fences.ts";

/** The path of a folder outside the workspace, whose packages must be installed. */
export const requirePackages = (folder: string): string => {
  const path = join(root, folder);
  if (existsSync(join(path, "node_modules"))) return path;
  throw new Error(`the packages of ${folder} are not installed: npm ci --prefix ${folder}`);
};
