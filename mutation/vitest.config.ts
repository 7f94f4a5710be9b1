/** Runs the kit on the copy of the core and of the memory store that Stryker changes. */
import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { defineConfig, type Plugin } from "vitest/config";

const root = fileURLToPath(new URL("..", import.meta.url));
/** The folder without Stryker's changes. Stryker copies everything to `mutation/.stryker-tmp/<name>`. */
const unchanged = root.replace(/mutation\/\.stryker-tmp\/[^/]+\/$/, "");

/**
 * The links in `node_modules` point to packages that are not changed. Imports of the test lead to the copy instead, and
 * those of the oracle, `unchanged/store-memory`, to what is not changed.
 */
const packages: Plugin = {
  name: "changed packages",
  enforce: "pre",
  resolveId(source, importer = "") {
    const [, scope, name, path = ""] =
      /^(@parley|unchanged)\/(core|store-memory)(\/.*)?$/.exec(source) ?? [];
    if (name === undefined) return null;
    const isChanged = scope === "@parley" && importer.startsWith(root);
    const isOracle = root !== unchanged && !isChanged;
    const folder = `${isOracle ? unchanged : root}packages/${name}`;
    const { exports } = JSON.parse(readFileSync(`${folder}/package.json`, "utf8"));
    return `${folder}/${exports[`.${path}`]}`;
  },
};

export default defineConfig({
  root,
  plugins: [packages],
  test: {
    include: ["mutation/kit.test.ts"],
    maxWorkers: 1,
    testTimeout: 30_000,
  },
});
