import { configDefaults, defineConfig } from "vitest/config";
import { testsWithoutPostgres } from "../test/postgres.ts";

export default defineConfig({
  test: {
    include: [
      "system/**/*.test.ts",
      "faults/**/*.test.ts",
      "{packages,apps}/*/test/**/*.long.test.ts",
      "examples/*/*.test.ts",
      "test/**/*.long.test.ts",
    ],
    // These are run by hand, with test:failover.
    exclude: [...configDefaults.exclude, "system/failover/**", ...testsWithoutPostgres()],
    globalSetup: ["test/postgres.ts"],
    setupFiles: ["test/children.ts"],
    // The tests spend much of their time waiting for processes.
    maxWorkers: 2,
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The default of a second is too short on a busy machine.
    expect: { poll: { timeout: 10_000 } },
  },
});
