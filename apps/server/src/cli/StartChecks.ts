/**
 * What a start needs besides the database and the models. The checks write nothing, and listen on no port.
 */
import { Effect } from "effect";
import { lookup } from "node:dns/promises";
import { accessSync, constants, existsSync, readFileSync, statSync } from "node:fs";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { dirname, resolve } from "node:path";
import { Settings } from "../Settings.ts";
import type { Variables } from "../Variables.ts";

/** What the program on a port answers to a request for liveness; `null` if none listens. */
const answerAt = (host: string, port: number) =>
  Effect.callback<string | null>((resume) => {
    let answer: string | null = null;
    const socket = connect({ host, port, timeout: 1000 }, () => {
      answer = "";
      socket.write("GET /health/live HTTP/1.1\r\nhost: parley\r\nconnection: close\r\n\r\n");
    });
    socket.on("data", (text) => (answer += String(text)));
    socket.on("timeout", () => socket.destroy()).on("error", () => {});
    socket.on("close", () => resume(Effect.succeed(answer)));
  });

/** Whether Linux lets only processes with CAP_NET_BIND_SERVICE listen on the port, and this one lacks it. */
const isPrivileged = (port: number): boolean => {
  try {
    const first = Number(readFileSync("/proc/sys/net/ipv4/ip_unprivileged_port_start", "utf8"));
    const capabilities = /^CapEff:\s*(\w+)/m.exec(readFileSync("/proc/self/status", "utf8"))![1]!;
    return port < first && (Number.parseInt(capabilities, 16) & 1024) === 0;
  } catch {
    return false;
  }
};

interface Problem {
  /** Whether a start fails because of it. */
  readonly fails: boolean;
  readonly message: string;
}

const checkListener = Effect.fnUntraced(function* (
  name: string,
  port: number,
  hostName: string,
  host: string,
): Effect.fn.Return<ReadonlyArray<Problem>> {
  const fail = (message: string) => [{ fails: true, message }];
  const found = yield* Effect.promise(() => lookup(host).catch(() => null));
  if (found === null) return fail(`${hostName} ${host} cannot be resolved.`);
  const isAny = found.address === "0.0.0.0" || found.address === "::";
  const own = Object.values(networkInterfaces()).flatMap((all) => all!.map((one) => one.address));
  if (!isAny && !/^127\./.test(found.address) && !own.includes(found.address)) {
    return fail(`${hostName} ${host} is not an address of this machine.`);
  }
  if (port === 0) return [];
  if (isPrivileged(port)) return fail(`${name} ${port} needs a privilege that this user lacks.`);
  const answer = yield* answerAt(isAny ? "localhost" : found.address, port);
  if (answer === null) return [];
  return /"live":true|"INVALID_PATH"/.test(answer)
    ? [{ fails: false, message: `A Parley server listens on ${name} ${port} already.` }]
    : fail(`${name} ${port} is taken by another program.`);
});

/** Whether the listeners can have their addresses. */
export const checkListeners = Effect.gen(function* () {
  const { askPort, host, managementHost, managementPort, port } = yield* Settings;
  const checks = [checkListener("PARLEY_PORT", port, "PARLEY_HOST", host)];
  if (askPort !== null) checks.push(checkListener("PARLEY_ASK_PORT", askPort, "PARLEY_HOST", host));
  if (managementPort !== 0) {
    const at = ["PARLEY_MANAGEMENT_HOST", managementHost] as const;
    checks.push(checkListener("PARLEY_MANAGEMENT_PORT", managementPort, ...at));
  }
  return (yield* Effect.all(checks)).flat();
});

/** Whether the collectors of OpenTelemetry can be reached. */
export const checkCollectors = Effect.fnUntraced(function* (variables: Variables) {
  const problems: Array<Problem> = [];
  for (const name of Object.keys(variables)) {
    const endpoint = variables[name]?.trim();
    if (!endpoint || !/^OTEL_EXPORTER_OTLP_(\w+_)?ENDPOINT$/.test(name)) continue;
    if (!URL.canParse(endpoint)) {
      problems.push({ fails: true, message: `${name} is not a URL.` });
      continue;
    }
    const { hostname, port, protocol } = new URL(endpoint);
    const host = hostname.replace(/^\[|\]$/g, "");
    const answer = yield* answerAt(host, Number(port) || (protocol === "https:" ? 443 : 80));
    if (answer !== null) continue;
    problems.push({ fails: false, message: `Nothing listens at ${endpoint} of ${name}.` });
  }
  return problems;
});

/** Why this process cannot write into a directory, which need not exist; `null` if it can. */
export const directoryProblem = (path: string): string | null => {
  let at = resolve(path);
  while (!existsSync(at)) at = dirname(at);
  try {
    if (!statSync(at).isDirectory()) return `${at} is not a directory`;
    accessSync(at, constants.W_OK | constants.X_OK);
    return null;
  } catch {
    return `this user cannot write into ${at}`;
  }
};
