import { configDefaults, defineConfig } from "vitest/config";
import { testsWithoutPostgres } from "./test/postgres.ts";

export default defineConfig({
  test: {
    include: ["packages/*/test/**/*.test.ts", "apps/*/test/**/*.test.ts", "test/**/*.test.ts"],
    // These run with test:system.
    exclude: [...configDefaults.exclude, "**/*.long.test.ts", ...testsWithoutPostgres()],
    globalSetup: ["test/postgres.ts"],
    setupFiles: ["test/children.ts"],
    // The tests spend much of their time waiting for processes.
    maxWorkers: 3,
    // Loading Effect again for each file would add a third to the CPU time.
    isolate: false,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
