import { configDefaults, defineConfig } from "vitest/config";
import { BaseSequencer, type TestSpecification } from "vitest/node";
import { testsWithoutPostgres } from "../test/postgres.ts";

/** These take longest, and would otherwise keep one worker busy at the end. */
const longest =
  /differential|OlderPostgres|Packages|Answers|RollingRestarts|Rounds|UnreadResponses/;

class LongestFirst extends BaseSequencer {
  override async sort(files: Array<TestSpecification>) {
    const isLong = ({ moduleId }: TestSpecification) => longest.test(moduleId);
    const sorted = await super.sort(files);
    return [...sorted.filter(isLong), ...sorted.filter((file) => !isLong(file))];
  }
}

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
    sequence: { sequencer: LongestFirst },
    testTimeout: 60_000,
    hookTimeout: 60_000,
    // The default of a second is too short on a busy machine.
    expect: { poll: { timeout: 10_000 } },
  },
});
