/**
 * Whether the server can listen where the settings say, or does so already.
 */
import { Effect } from "effect";
import { createServer } from "node:net";
import { Settings } from "../Settings.ts";
import { failed, ok, type Finding } from "./Finding.ts";

/** Why nobody can listen there; `null` when one can. */
const refusal = (host: string, port: number) =>
  Effect.callback<string | null>((resume) => {
    const server = createServer();
    server.on("error", (error: NodeJS.ErrnoException) =>
      resume(Effect.succeed(error.code ?? error.message)),
    );
    server.listen({ host, port, exclusive: true }, () =>
      server.close(() => resume(Effect.succeed(null))),
    );
    return Effect.sync(() => server.close());
  });

/** Whether what listens there answers as a server of Parley does. */
const isParley = (url: string) =>
  Effect.tryPromise(async (signal) => {
    const response = await fetch(url, { signal, redirect: "error" });
    const body: any = await response.json();
    return body?.data?.live === true || (body?.status === 401 && typeof body.code === "number");
  }).pipe(
    Effect.timeout("2 seconds"),
    Effect.orElseSucceed(() => false),
  );

const whyNot: Readonly<Record<string, (setting: string) => readonly [string, string]>> = {
  EADDRINUSE: (setting) => [
    "is taken by another program",
    `Stop that program, or set ${setting} to another port.`,
  ],
  EACCES: (setting) => [
    "is not allowed to this user",
    `Set ${setting} to a port from 1024 on, or let this user listen there.`,
  ],
  EADDRNOTAVAIL: () => [
    "is not on this machine",
    "Set PARLEY_HOST to an address of this machine; 0.0.0.0 stands for all of them.",
  ],
};

const checkPort = Effect.fnUntraced(function* (
  setting: string,
  port: number | null,
  path: string,
): Effect.fn.Return<ReadonlyArray<Finding>, never, Settings> {
  const { host } = yield* Settings;
  if (port === null || port === 0) return [];
  const at = `${host.includes(":") ? `[${host}]` : host}:${port}`;
  const code = yield* refusal(host, port);
  if (code === null) return [ok("ports", `${at} of ${setting} is free.`)];
  if (code === "EADDRINUSE" && (yield* isParley(`http://${at}${path}`))) {
    return [ok("ports", `${at} of ${setting} is served by a running server.`)];
  }
  const [why, hint] = whyNot[code]?.(setting) ?? [
    `cannot be used (${code})`,
    `Correct PARLEY_HOST and ${setting}.`,
  ];
  return [failed("ports", `${at} of ${setting} ${why}.`, hint)];
});

export const checkPorts = Effect.gen(function* () {
  const { askPort, basePaths, managementPort, port } = yield* Settings;
  const checks = [
    ["PARLEY_PORT", port, `${basePaths.general}/details`],
    ["PARLEY_ASK_PORT", askPort, `${basePaths.answers}/`],
    ["PARLEY_MANAGEMENT_PORT", managementPort, "/health/live"],
  ] as const;
  const same = checks.find(
    ([, port], at) =>
      port !== null && port !== 0 && checks.some(([, one], n) => n < at && one === port),
  );
  if (same !== undefined) {
    const [setting, port] = same;
    const hint = `Set ${setting} to another port.`;
    return [failed("ports", `${setting} ${port} is another listener's port, too.`, hint)];
  }
  const findings = yield* Effect.forEach(checks, ([setting, port, path]) =>
    checkPort(setting, port, path),
  );
  return findings.flat();
});
