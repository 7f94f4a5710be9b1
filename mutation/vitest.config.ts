/** The memory store's conformance test, run against the copy that Stryker mutates. */
import { fileURLToPath } from "node:url";
import { defineConfig } from "vitest/config";

const root = new URL("..", import.meta.url);
const store = fileURLToPath(new URL("packages/store-memory/src/index.ts", root));

export default defineConfig({
  root: fileURLToPath(root),
  // The links in `node_modules` point to the store that is not mutated.
  resolve: { alias: { "@parley/store-memory": store } },
  test: {
    include: ["packages/store-memory/test/conformance.test.ts"],
    maxWorkers: 1,
    testTimeout: 20_000,
  },
});
