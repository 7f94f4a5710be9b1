/**
 * Checks the listeners, the telemetry collectors and the data directory, without writing files.
 */
import { Effect } from "effect";
import { accessSync, constants, existsSync } from "node:fs";
import { connect, createServer } from "node:net";
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

/**
 * What the doctor reports: `failed` means that the server would not start, and `warning` that it may not work as the
 * operator intends. A finding without a hint of its own has that of its check.
 */
export type Finding = readonly [
  status: "ok" | "warning" | "failed",
  message: string,
  hint?: string | undefined,
];

/** Returns the findings without those that are `false`. */
export const report = (...findings: ReadonlyArray<Finding | false>): ReadonlyArray<Finding> =>
  findings.filter((finding) => finding !== false);

/** Listens on an address for a moment, unless a server of Parley does. */
const checkListener = Effect.fnUntraced(function* (name: string, port: number, host: string) {
  const error = yield* Effect.callback<NodeJS.ErrnoException | null>((resume) => {
    const server = createServer();
    server.once("error", (error) => resume(Effect.succeed(error)));
    server.listen({ host, port }, () => server.close(() => resume(Effect.succeed(null))));
  });
  if (error === null) return [];
  if (error.code !== "EADDRINUSE") return report(["failed", `${error.message} for ${name}.`]);
  const response = yield* probe(host, port);
  return /"live":true|"INVALID_PATH"/.test(response ?? "")
    ? report(["ok", `A Parley server is listening on ${name} ${port}.`])
    : report(["failed", `${name} ${port} is in use by another program.`]);
});

export const checkListeners = Effect.gen(function* () {
  const { askPort, host, management, port } = yield* Settings;
  const checks = [
    checkListener("PARLEY_PORT", port, host),
    ...(askPort === null ? [] : [checkListener("PARLEY_ASK_PORT", askPort, host)]),
    ...(management === null
      ? []
      : [checkListener("PARLEY_MANAGEMENT_PORT", management.port, management.host)]),
  ];
  return (yield* Effect.all(checks)).flat();
});

/** Checks whether an OpenTelemetry collector can be reached. */
const checkCollector = Effect.fnUntraced(function* (name: string, endpoint: string) {
  if (!URL.canParse(endpoint)) return report(["failed", `${name} is not a URL.`]);
  const { hostname, port, protocol } = new URL(endpoint);
  const host = hostname.replace(/^\[|\]$/g, "");
  const response = yield* probe(host, Number(port) || (protocol === "https:" ? 443 : 80));
  return report(response === null && ["warning", `Nothing is listening at ${endpoint} (${name}).`]);
});

export const checkCollectors = (variables: Variables) =>
  Effect.forEach(Object.entries(variables), ([name, endpoint = ""]) =>
    /^OTEL_EXPORTER_OTLP_(\w+_)?ENDPOINT$/.test(name) && endpoint.trim() !== ""
      ? checkCollector(name, endpoint)
      : Effect.succeed([]),
  ).pipe(Effect.map((findings) => findings.flat()));

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

/** Checks the directory to which the first start writes a database or a key. */
export const checkDirectory = Effect.fnUntraced(function* (chatbots: number) {
  const { dataDir, provision, store } = yield* Settings;
  const isNew = chatbots === 0 && (store === "sqlite" || provision === null);
  const directory = isNew ? findUnwritable(dataDir) : null;
  const status = store === "sqlite" ? "failed" : "warning";
  return report(directory !== null && [status, `The server cannot write to ${directory}.`]);
});
