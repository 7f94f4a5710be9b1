/**
 * Reads environment variables, or the files that contain their values, and warns about variables that have no effect.
 */
import { Data, Effect } from "effect";
import { isUtf8 } from "node:buffer";
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import { getCACertificates } from "node:tls";

export class SettingsInvalid extends Data.TaggedError("SettingsInvalid")<{
  readonly message: string;
}> {}

export type Variables = Readonly<Record<string, string | undefined>>;

/** Decodes UTF-8, and drops a byte order mark. Throws for other encodings; NULs are taken as a sign of UTF-16. */
export const decodeUtf8 = (bytes: Uint8Array): string => {
  const text = new TextDecoder().decode(bytes);
  if (!isUtf8(bytes) || text.includes("\0")) throw new Error("is not UTF-8");
  return text;
};

/** Reads PEM certificates from a file; the path `system` stands for those of the operating system. */
export const readAuthorities = (path: string) =>
  Effect.try({
    try: () => {
      if (path === "system") return getCACertificates("system");
      const certificates = decodeUtf8(readFileSync(path));
      // TLS would silently ignore a file without a certificate; the constructor throws.
      new X509Certificate(certificates);
      return certificates;
    },
    catch: () =>
      new SettingsInvalid({
        message:
          "DATABASE_URL: sslrootcert must be the path to a readable PEM certificate file, or system.",
      }),
  });

const readLine = (path: string): string => {
  const line = decodeUtf8(readFileSync(path)).replace(/\r?\n$/, "");
  if (line.trim() === "") throw new Error("is empty");
  if (/[\r\n]/.test(line)) throw new Error("has more than one line");
  return line.trim();
};

/** Returns the variable for the path of a file with the setting's value; empty if the setting is itself a path. */
const fileVariable = (name: string) =>
  /^PARLEY_(DATA_DIR|KNOWLEDGE_DIR|PROVISION)$/.test(name) ? "" : `${name}_FILE`;

/**
 * Reads a variable, or the only line of the file that `<name>_FILE` names, and trims the value. A variable that
 * contains only white space counts as unset.
 */
export const readVariable = (
  variables: Variables,
  name: string,
): Effect.Effect<string | undefined, SettingsInvalid> => {
  const value = variables[name]?.trim();
  const path = variables[fileVariable(name)]?.trim();
  if (!path) return Effect.succeed(value || undefined);
  const invalid = (message: string) => new SettingsInvalid({ message });
  if (value) return invalid(`${name} and ${name}_FILE are both set: unset one.`);
  return Effect.try({
    try: () => readLine(path),
    catch: (error) => {
      const { code, message } = error as NodeJS.ErrnoException;
      const reason = code === undefined ? message : `cannot be read (${code})`;
      return invalid(`${name}_FILE: the file ${path} ${reason}.`);
    },
  });
};

/** Whether Kubernetes has set the variable to the address of a Service. */
export const isServiceLink = (name: string, value = "") =>
  name.endsWith("_PORT") && /^(tcp|udp|sctp):\/\//.test(value);

/** Matches the names of the other variables that Kubernetes sets for a Service. */
const serviceVariable = /_SERVICE_(HOST|PORT)(_|$)|_PORT_\d+_(TCP|UDP|SCTP)(_|$)/;

/** Returns warnings about variables that look like settings but have no effect. */
export const ignoredVariables = (
  variables: Variables,
  settings: Pick<ReadonlyMap<string, unknown>, "keys" | "has">,
) => {
  const files = new Set(Array.from(settings.keys(), fileVariable));
  const names = Object.keys(variables).filter(
    (name) => /^(PARLEY|DATABASE)_/.test(name) && variables[name]?.trim(),
  );
  const isLink = (name: string) => isServiceLink(name, variables[name]);
  const links = names.filter((name) => isLink(name) && settings.has(name)).join(", ");
  const warnings = names
    .filter((name) => !settings.has(name) && !files.has(name))
    .filter((name) => !isLink(name) && !serviceVariable.test(name))
    .map((name) => `${name} is not a setting: docs/settings.md lists all settings.`);
  if (links === "") return warnings;
  const link = `${links}: ignored, because Kubernetes sets such variables for Services; set enableServiceLinks: false in the pod's spec to prevent this.`;
  return [link, ...warnings];
};

/** The values that the server supports for OpenTelemetry's variables. */
const telemetryValues: Readonly<Record<string, RegExp>> = {
  OTEL_EXPORTER_OTLP_PROTOCOL: /^http\/(protobuf|json)$/,
  OTEL_LOGS_EXPORTER: /^(otlp|none)$/,
  OTEL_METRICS_EXPORTER: /^(otlp|none)$/,
  OTEL_TRACES_EXPORTER: /^(otlp|none)$/,
  OTEL_TRACES_SAMPLER: /^(parentbased_)?always_on$/,
};

/** Returns a warning for each OpenTelemetry variable whose value the server does not support. */
export const ignoredTelemetry = (variables: Variables): ReadonlyArray<string> =>
  Object.entries(telemetryValues).flatMap(([name, values]) => {
    const value = variables[name];
    return !value || values.test(value)
      ? []
      : [`${name}=${value} is not supported: docs/monitoring.md lists the supported values.`];
  });

/** Returns a warning if Node does not use a configured proxy for the address, unless NO_PROXY exempts the host. */
export const unusedProxy = (variables: Variables, address: string): ReadonlyArray<string> => {
  const { hostname, protocol } = new URL(address);
  const valueOf = (name: string) => variables[name] || variables[name.toLowerCase()] || "";
  const usesProxies = valueOf("NODE_USE_ENV_PROXY") === "1";
  const unused = usesProxies ? ["ALL_PROXY"] : ["HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY"];
  const proxies = unused.filter(valueOf).join(" and ");
  const hasProxy =
    usesProxies && valueOf(protocol === "https:" ? "HTTPS_PROXY" : "HTTP_PROXY") !== "";
  const isDirect = valueOf("NO_PROXY")
    .split(/[\s,]+/)
    .map((name) => name.replace(/^\*?\.|:\d+$/g, ""))
    .some((name) => name === "*" || (name !== "" && `.${hostname}`.endsWith(`.${name}`)));
  if (proxies === "" || isDirect || hasProxy) return [];
  return [
    `Requests to ${hostname} do not use the proxy set in ${proxies}: Node uses only HTTPS_PROXY and HTTP_PROXY, and only with NODE_USE_ENV_PROXY=1 (docs/models.md).`,
  ];
};
