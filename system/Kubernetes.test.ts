/**
 * Checks deploy/kubernetes.yaml against the schemas and types of the Kubernetes API, and against Parley's settings,
 * without a cluster.
 */
import { Duration, Effect, Redacted } from "effect";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { expect, inject, it } from "vitest";
import { readSettings } from "../apps/server/src/Settings.ts";
import { run } from "../apps/server/test/cli/run.ts";
import { read } from "../test/docs/Fences.ts";
import { judge } from "./programs/judges.ts";

const sample = read("deploy/kubernetes.yaml");

/** Returns the objects in a YAML file. If they are invalid, the error says why. */
const check = async (yaml: string): Promise<ReadonlyArray<any>> =>
  JSON.parse(await judge(["kubernetes.ts"], yaml));

it("the samples for Kubernetes have only fields and values that the Kubernetes API accepts", async () => {
  expect((await check(sample)).map(({ kind }) => kind)).toEqual([
    "Secret",
    "ConfigMap",
    "Deployment",
    "Service",
    "PodDisruptionBudget",
  ]);
  expect((await check(read("deploy/kubernetes.file.yaml"))).map(({ kind }) => kind)).toEqual([
    "PersistentVolumeClaim",
    "Deployment",
    "Service",
  ]);
  await expect(check(sample.replace("enableServiceLinks", "enableLinks"))).rejects.toThrow(
    "enableLinks",
  );
  await expect(
    check(sample.replace("failureThreshold: 2", "failureThreshold: two")),
  ).rejects.toThrow("failureThreshold");
});

it("deploy/kubernetes.yaml gives the server its settings and secrets, and the probes the management port", async () => {
  const [secret, config, deployment, service] = await check(sample);
  const pod = deployment.spec.template.spec;
  const [container] = pod.containers;
  const root = await mkdtemp(join(tmpdir(), "parley-kubernetes-"));
  try {
    const files = { secrets: secret.stringData, chatbots: config.data, tmp: {} };
    for (const { mountPath, name } of container.volumeMounts) {
      for (const [file, text] of Object.entries(files[name as keyof typeof files])) {
        await mkdir(join(root, mountPath), { recursive: true });
        await writeFile(join(root, mountPath, file), String(text));
      }
    }
    const env: Record<string, string> = Object.fromEntries(
      container.env.map(({ name, value }: { name: string; value: string }) => [
        name,
        value.startsWith("/") ? join(root, value) : value,
      ]),
    );
    // What Kubernetes would add without enableServiceLinks: false.
    const links = { PARLEY_PORT: "tcp://10.0.0.1:80", PARLEY_SERVICE_HOST: "10.0.0.1" };
    expect(pod.enableServiceLinks).toBe(false);
    // The manifest's own password opens nothing.
    const reading = () => Effect.runPromise(readSettings({ ...env, ...links }));
    await expect(reading()).rejects.toThrow("placeholder");
    const databaseUrl = secret.stringData["database-url"].replace(":secret@", ":own@");
    await writeFile(env["DATABASE_URL_FILE"]!, databaseUrl);
    const settings = await reading();
    expect(settings.warnings).toEqual([expect.stringContaining("enableServiceLinks")]);
    expect(Redacted.value(settings.databaseUrl!)).toBe(databaseUrl);
    const ports = { http: settings.port, management: settings.management?.port };
    for (const { containerPort, name } of container.ports) {
      expect(containerPort).toBe(ports[name as keyof typeof ports]);
    }
    expect(settings.management?.host).toBe("0.0.0.0");
    for (const probe of ["startupProbe", "readinessProbe", "livenessProbe"]) {
      expect(container[probe].httpGet.port).toBe("management");
    }
    expect(service.spec.ports[0].targetPort).toBe("http");
    const stop = Duration.sum(settings.drainDelay, settings.asks.deadline);
    expect(pod.terminationGracePeriodSeconds).toBeGreaterThan(Duration.toSeconds(stop) + 40);

    const database = { DATABASE_URL: inject("postgresUrl"), PARLEY_SCHEMA: `k8s_${Date.now()}` };
    const { DATABASE_URL_FILE: _, ...rest } = env;
    await run(["migrate"], database);
    const provision = () => run(["provision"], { ...rest, ...database });
    // The manifest's own key opens nothing.
    expect(await provision()).toMatchObject({ code: 1, stdout: "" });
    const { stdout: key } = await run(["key", "generate"], {});
    await writeFile(env["HELPDESK_KEY_FILE"]!, key);
    const provisioned = await provision();
    expect(provisioned).toMatchObject({ code: 0, stdout: expect.stringContaining("Helpdesk") });
    expect(dirname(env["PARLEY_PROVISION"]!)).toBe(join(root, "etc/parley"));
  } finally {
    await rm(root, { recursive: true });
  }
});
