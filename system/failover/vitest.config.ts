import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["system/failover/*.test.ts"],
    globalSetup: ["test/postgres.ts"],
    setupFiles: ["test/children.ts"],
    maxWorkers: 1,
  },
});
