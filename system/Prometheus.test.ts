/** The alerts in `deploy/prometheus-rules.yaml`, checked and tested with Debian's promtool. */
import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { expect, it } from "vitest";

const promtool = async (...args: ReadonlyArray<string>) =>
  (await promisify(execFile)("promtool", args)).stdout;

it("promtool accepts the alerts", async () => {
  expect(await promtool("check", "rules", "deploy/prometheus-rules.yaml")).toContain("SUCCESS");
});

it("each alert fires on a series that warrants it, and stays quiet on another", async () => {
  const tests = readFileSync("system/prometheus/rules.test.yaml", "utf8");
  const rules = readFileSync("deploy/prometheus-rules.yaml", "utf8");
  for (const [, alert] of rules.matchAll(/alert: (\w+)/g)) {
    for (const title of [`${alert} fires\n`, `${alert} stays quiet\n`])
      expect(tests).toContain(title);
  }
  expect(await promtool("test", "rules", "system/prometheus/rules.test.yaml")).toContain("SUCCESS");
});
