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

/** `ok` is what may surprise, `failed` means that the server would not start, and `warning` that something may be wrong. */
type Problem = readonly [
  check: "listeners" | "telemetry" | "directory",
  status: "ok" | "failed" | "warning",
  message: string,
];

/** Listens on an address for a moment, unless a server of Parley does. */
const checkListener = (name: string, port: number, host: string) =>
  Effect.callback<string | null>((resume) => {
    const server = createServer();
    server.once("error", ({ code, message }: NodeJS.ErrnoException) =>
      resume(Effect.succeed(code === "EADDRINUSE" ? code : `${message} for ${name}.`)),
    );
    server.listen({ host, port }, () => server.close(() => resume(Effect.succeed(null))));
  }).pipe(
    Effect.flatMap(
      Effect.fnUntraced(function* (mistake): Effect.fn.Return<ReadonlyArray<Problem>> {
        if (mistake === null) return [];
        if (mistake !== "EADDRINUSE") return [["listeners", "failed", mistake]];
        const response = yield* probe(host, port);
        return /"live":true|"INVALID_PATH"/.test(response ?? "")
          ? [["listeners", "ok", `A Parley server is listening on ${name} ${port}.`]]
          : [["listeners", "failed", `${name} ${port} is in use by another program.`]];
      }),
    ),
  );

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
