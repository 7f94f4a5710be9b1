import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["system/**/*.test.ts", "faults/**/*.test.ts"],
    globalSetup: ["test/postgres.ts"],
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
