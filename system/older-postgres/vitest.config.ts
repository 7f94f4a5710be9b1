import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["packages/store-pg/test/**/{conformance,plans,Migrator,tenants,flat.long}.test.ts"],
    globalSetup: ["test/postgres.ts"],
    setupFiles: ["test/children.ts"],
    // One at a time, because other tests run at the same time.
    maxWorkers: 1,
    testTimeout: 30_000,
    hookTimeout: 60_000,
  },
});
