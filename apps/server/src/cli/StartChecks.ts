/**
 * Checks the listeners, the telemetry collectors and the data directory, without writing files or listening on ports.
 */
import { Effect } from "effect";
import { lookup } from "node:dns/promises";
import { accessSync, constants, existsSync } from "node:fs";
import { connect } from "node:net";
import { networkInterfaces } from "node:os";
import { dirname, resolve } from "node:path";
import { Settings } from "../Settings.ts";
import type { Variables } from "../Variables.ts";

/** Sends a liveness request, and returns the response; `null` if nothing is listening. */
const probe = (host: string, port: number) =>
  Effect.callback<string | null>((resume) => {
    let response: string | null = null;
    const socket = connect({ host, port, timeout: 1000 }, () => {
      response = "";
      socket.write("GET /health/live HTTP/1.1\r\nhost: parley\r\nconnection: close\r\n\r\n");
    });
    socket.on("data", (text) => (response += String(text)));
    socket.on("timeout", () => socket.destroy()).on("error", () => {});
    socket.on("close", () => resume(Effect.succeed(response)));
  });

/** `failed` means that the server would not start, and `warning` that something may be wrong. */
type Problem = readonly [
  check: "listeners" | "telemetry" | "directory",
  status: "failed" | "warning",
  message: string,
];

/** Finds what would prevent a listener from using its address. */
const checkListener = Effect.fnUntraced(function* (
  name: string,
  port: number,
  host: string,
): Effect.fn.Return<ReadonlyArray<Problem>> {
  const failed = (message: string) => [["listeners", "failed", message] as const];
  const target = yield* Effect.promise(() => lookup(host).catch(() => null));
  if (target === null) return failed(`The host ${host} for ${name} cannot be resolved.`);
  const isAny = target.address === "0.0.0.0" || target.address === "::";
  const addresses = Object.values(networkInterfaces()).flatMap((all) =>
    all!.map(({ address }) => address),
  );
  if (!isAny && !target.address.startsWith("127.") && !addresses.includes(target.address)) {
    return failed(`The host ${host} for ${name} is not an address of this machine.`);
  }
  const response = port === 0 ? null : yield* probe(isAny ? "localhost" : target.address, port);
  if (response === null) return [];
  return /"live":true|"INVALID_PATH"/.test(response)
    ? [["listeners", "warning", `A Parley server is already listening on ${name} ${port}.`]]
    : failed(`${name} ${port} is in use by another program.`);
});

/** Checks whether an OpenTelemetry collector can be reached. */
const checkCollector = Effect.fnUntraced(function* (
  name: string,
  endpoint: string,
): Effect.fn.Return<ReadonlyArray<Problem>> {
  if (!URL.canParse(endpoint)) return [["telemetry", "failed", `${name} is not a URL.`]];
  const { hostname, port, protocol } = new URL(endpoint);
  const response = yield* probe(
    hostname.replace(/^\[|\]$/g, ""),
    Number(port) || (protocol === "https:" ? 443 : 80),
  );
  const message = `Nothing is listening at ${endpoint} (${name}).`;
  return response === null ? [["telemetry", "warning", message]] : [];
});

/**
 * Checks whether this process can write to the directory or, if it does not exist, create it. Returns the existing path
 * that prevents this; `null` if nothing does.
 */
const findUnwritable = (path: string): string | null => {
  let at = resolve(path);
  while (!existsSync(at)) at = dirname(at);
  try {
    // The `/.` makes the check fail for a file, too.
    accessSync(`${at}/.`, constants.W_OK | constants.X_OK);
    return null;
  } catch {
    return at;
  }
};

export const checkStart = Effect.fnUntraced(function* (variables: Variables, chatbots: number) {
  const { askPort, dataDir, host, management, port, provision, store } = yield* Settings;
  const collectors = Object.entries(variables).flatMap(([name, endpoint = ""]) =>
    /^OTEL_EXPORTER_OTLP_(\w+_)?ENDPOINT$/.test(name) && endpoint.trim() !== ""
      ? [checkCollector(name, endpoint)]
      : [],
  );
  const problems = yield* Effect.all([
    checkListener("PARLEY_PORT", port, host),
    ...(askPort === null ? [] : [checkListener("PARLEY_ASK_PORT", askPort, host)]),
    ...(management === null
      ? []
      : [checkListener("PARLEY_MANAGEMENT_PORT", management.port, management.host)]),
    ...collectors,
  ]);
  // The first start writes a database or a key to PARLEY_DATA_DIR.
  const isNew = chatbots === 0 && (store === "sqlite" || provision === null);
  const directory = isNew ? findUnwritable(dataDir) : null;
  if (directory === null) return problems.flat();
  const status = store === "sqlite" ? "failed" : "warning";
  const problem: Problem = ["directory", status, `The server cannot write to ${directory}.`];
  return [...problems.flat(), problem];
});
