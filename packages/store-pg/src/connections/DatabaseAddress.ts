/**
 * Parses the address of a database as libpq does, except that `sslmode=require` verifies the certificate. The driver
 * itself behaves differently: it ignores unknown parameters, verifies certificates even with `sslmode=prefer`, and
 * falls back to plain text only if PostgreSQL does not support TLS.
 */
import { describeCause } from "@parley/core/ports";
import { Redacted } from "effect";
import type { SqlError } from "effect/sql";
import { codeOf } from "./PgErrors.ts";
import { makeTlsChoice, type TlsChoice, type TlsOptions } from "./TlsFallback.ts";

const supportedParameters =
  /^(application_name|dbname|host|options|password|port|sslmode|sslrootcert|user)$/;
const onePrimary = "use one address that always leads to the primary, such as a proxy's";
/** What to do about an unsupported parameter; by default, remove it. */
const advice: Readonly<Record<string, string>> = {
  load_balance_hosts: onePrimary,
  ssl: "use sslmode=require or sslmode=disable",
  target_session_attrs: onePrimary,
};
const modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];
const noAddress = "is not an address such as postgres://user:password@host:5432/database";
const notEncoded =
  "is not a valid address: percent-encode special characters in the user name and password (/ as %2F, # as %23, % as %25), and check the port";

export interface Transport {
  readonly url: Redacted.Redacted;
  readonly applicationName: string;
  readonly database: string;
  /** The file with the trusted certificate authorities, or `system`. This package does not read the file. */
  readonly authorities: string | undefined;
  readonly tls: TlsChoice;
  /** Whether the address leads to a pooler; `undefined` until `detectPooler` has connected. */
  isPooler: boolean | undefined;
}

/** Parses an address. A returned string says what is wrong with the address, and contains no part of a password. */
const readAddress = (address: string): Transport | string => {
  const [, authority, rest] = /^postgres(?:ql)?:\/\/([^/?#]*)(.*)$/s.exec(address) ?? [];
  if (authority === undefined) return noAddress;
  // libpq accepts a user without a host, for example if the `host` parameter is a socket directory; `URL` does not.
  const text = authority.endsWith("@") ? address.replace(/@(?=[/?#]|$)/, "@localhost") : address;
  const severalHosts = `lists several hosts: ${onePrimary}`;
  if (authority.slice(authority.lastIndexOf("@") + 1).includes(",")) return severalHosts;
  if (!URL.canParse(text)) return text.includes("@") ? notEncoded : noAddress;
  const url = new URL(text);
  // `URLSearchParams` decodes + as a space; libpq leaves it unchanged.
  url.search = url.search.replaceAll("+", "%2B");
  const parameters = Object.fromEntries(url.searchParams);
  const parameter = Object.keys(parameters).find((name) => !supportedParameters.test(name));
  const isSplit = parameter !== undefined && (rest!.includes("@") || !/^\w+$/.test(parameter));
  const path = url.username + url.password + url.hostname + url.pathname;
  if (isSplit || url.hash !== "" || url.pathname.includes("@") || /%(?![\da-f]{2})/i.test(path)) {
    return notEncoded;
  }
  if (parameter !== undefined) {
    return `has the parameter ${parameter}, which is not supported: ${advice[parameter] ?? "remove it"}`;
  }
  const {
    application_name = "parley",
    dbname = decodeURIComponent(url.pathname.slice(1)),
    host = url.hostname,
    sslrootcert,
  } = parameters;
  if (host.includes(",")) return severalHosts;
  const { sslmode = sslrootcert === "system" ? "verify-full" : "prefer" } = parameters;
  // libpq never encrypts connections over Unix sockets, whatever the mode.
  const mode = /^(\/|%2f)/i.test(host) ? 0 : modes.indexOf(sslmode);
  if (mode === -1) return `has an unknown sslmode: it must be one of ${modes.join(", ")}`;
  const isVerified = mode >= 3;
  const options: TlsOptions = {
    rejectUnauthorized: isVerified,
    ...(sslmode === "verify-ca" && { checkServerIdentity: () => undefined }),
  };
  return {
    url: Redacted.make(url.href),
    applicationName: application_name,
    database: dbname,
    authorities: isVerified ? sslrootcert : undefined,
    tls: makeTlsChoice(
      mode < 2 ? false : options,
      mode === 1 ? options : mode === 2 ? false : null,
    ),
    isPooler: undefined,
  };
};

const transports = new WeakMap<Redacted.Redacted, Transport | string>();

/**
 * Returns how to connect to an address, or what is wrong with it, phrased as the rest of a sentence about it. All
 * connections that use the same `url` object share the result.
 */
export const transportOf = (url: Redacted.Redacted): Transport | string => {
  const transport = transports.get(url) ?? readAddress(Redacted.value(url));
  transports.set(url, transport);
  return transport;
};

/** Describes how the latest connection to an address is encrypted or, before the first one, how it will be. */
export const securityOf = (url: Redacted.Redacted): string => {
  const ssl = (transportOf(url) as Transport).tls.latest();
  if (ssl === false) return "plain text";
  if (ssl.rejectUnauthorized === true) return "verified TLS";
  const hasAuthority = Redacted.value(url).includes("sslrootcert=");
  return `unverified TLS${hasAuthority ? ": sslrootcert needs an sslmode that verifies certificates, such as verify-full" : ""}`;
};

/** Describes why a connection failed, and what the operator can do about it. */
export const describeFailure = (error: SqlError.SqlError): string => {
  const message = describeCause(error);
  const hints: ReadonlyArray<readonly [RegExp, string]> = [
    [
      /SELF_SIGNED|UNABLE_TO_/,
      "set sslrootcert or NODE_EXTRA_CA_CERTS to the path of PostgreSQL's CA certificate",
    ],
    [/No username/, "add one, as in postgres://user:password@host:5432/database"],
    [/ALTNAME_INVALID/, "use a host name that the certificate contains, or set sslmode=verify-ca"],
  ];
  const hint = hints.find(([pattern]) => pattern.test(`${codeOf(error)} ${message}`))?.[1];
  return hint === undefined ? message : `${message.replace(/[.:\s]+$/, "")}: ${hint}`;
};
