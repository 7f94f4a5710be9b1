import { expect, it } from "vitest";
import { read, sectionOf } from "./Fences.ts";

const rules = read("deploy/prometheus-rules.yaml");
const alerts = [...rules.matchAll(/alert: (\w+)/g)].map(([, name]) => name!);

it("each alert links to its section of docs/troubleshooting.md, and each section has an alert", () => {
  const sections = [...read("docs/troubleshooting.md").matchAll(/^## (\w+)$/gm)].map(
    ([, name]) => name,
  );
  expect(sections).toEqual(alerts);
  const runbooks = [...rules.matchAll(/runbook: (\S+)/g)].map(([, link]) => link);
  expect(runbooks).toEqual(alerts.map((name) => `docs/troubleshooting.md#${name.toLowerCase()}`));
});

it("the alerts and the dashboard use only documented metrics, and each metric has a panel", () => {
  const table = sectionOf(read("docs/monitoring.md"), "## Metrics");
  const metrics = new Set([...table.matchAll(/^\| `(\w+)`/gm)].map(([, name]) => name));
  const dashboard = JSON.parse(read("deploy/grafana-dashboard.json"));
  const panels: ReadonlyArray<{ targets: ReadonlyArray<{ expr: string }> }> = dashboard.panels;
  const queries = panels.flatMap(({ targets }) => targets.map(({ expr }) => expr));
  const metricsIn = (text: string) =>
    new Set(
      [...text.matchAll(/\b(?:parley|http_server|db_client|process|nodejs|v8js)_\w+/g)]
        .map(([name]) => name.replace(/_(bucket|count|sum)$/, ""))
        .filter((name) => name !== "db_client_connection_pool_name"),
    );
  const shownMetrics = metricsIn(queries.join("\n"));
  const alertedMetrics = metricsIn(rules.replaceAll(/^ +runbook: .*$/gm, ""));
  expect(shownMetrics).toEqual(metrics);
  expect([...alertedMetrics].filter((name) => !metrics.has(name))).toEqual([]);
});
