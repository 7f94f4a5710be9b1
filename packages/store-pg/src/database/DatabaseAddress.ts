/**
 * The address of a database: its parameters, and whether its connections are encrypted, as libpq does it. The driver
 * ignores parameters that it does not know, verifies certificates with `sslmode=prefer`, too, and falls back to plain
 * text only if PostgreSQL has no TLS.
 */
import { describeCause } from "@parley/core";
import { Redacted } from "effect";
import { SqlError } from "effect/sql";
import { X509Certificate } from "node:crypto";
import { readFileSync } from "node:fs";
import * as tls from "node:tls";
import { codeOf } from "./PgErrors.ts";

const supported = new Set(
  "application_name dbname host options password port sslmode sslrootcert user".split(" "),
);

/** What other tools write into addresses, and what changes nothing. */
const harmless =
  /^(channel_binding=(disable|prefer)|client_encoding=utf-?8|gssencmode=(disable|prefer)|target_session_attrs=any)$/i;

const onePrimary =
  "name the one address that always leads to the primary, such as that of a proxy (docs/scaling.md)";

/** What to do about a parameter. Any other is to be removed. */
const advice: Readonly<Record<string, string>> = {
  channel_binding: "remove it; sslmode=verify-full verifies the server",
  connect_timeout: "remove it; a connection attempt takes four seconds at most",
  connection_limit: "set PARLEY_DATABASE_CONNECTIONS in its place",
  load_balance_hosts: onePrimary,
  passfile:
    "write the password into the address, or name a file with the address in DATABASE_URL_FILE",
  pgbouncer: "set PARLEY_POOLER=true in its place",
  schema: "set PARLEY_SCHEMA in its place",
  ssl: "write sslmode=require, or sslmode=disable",
  target_session_attrs: onePrimary,
};

/** By strength. */
const modes = ["disable", "allow", "prefer", "require", "verify-ca", "verify-full"];

const notAnAddress = "is not an address such as postgres://user:password@host:5432/database";
const notEncoded =
  "is not a valid address: percent-encode special characters in user and password (/ as %2F, # as %23, % as %25), and check the port";

interface Transport {
  /** The address as the driver reads it. */
  readonly url: Redacted.Redacted;
  readonly applicationName: string;
  /** The options of the next connection; `false`: plain text. */
  ssl: false | tls.ConnectionOptions;
  /** The options to try if PostgreSQL refuses those of `ssl`; `null`: none. */
  other: false | tls.ConnectionOptions | null;
  readonly isVerified: boolean;
  /** Whether `sslrootcert` has no effect. */
  readonly ignoresAuthority: boolean;
}

/** Reads an address. A string says what is wrong with it, and contains no part of a password. */
const readAddress = (text: string): Transport | string => {
  const [, authority, rest] = /^postgres(?:ql)?:\/\/([^/?#]*)(.*)$/s.exec(text) ?? [];
  if (authority === undefined) return notAnAddress;
  const several = `names several hosts: ${onePrimary}`;
  if (authority.slice(authority.lastIndexOf("@") + 1).includes(",")) return several;
  if (!URL.canParse(text)) return text.includes("@") ? notEncoded : notAnAddress;
  const url = new URL(text);
  // In a form + is a space; libpq takes it as it is.
  url.search = url.search.replaceAll("+", "%2B");
  const parameters = Object.fromEntries(url.searchParams);
  const unsupported = Object.keys(parameters).find(
    (name) => !supported.has(name) && !harmless.test(`${name}=${parameters[name]}`),
  );
  const isEncoded = [url.hostname, url.password, url.pathname, url.username].every((part) =>
    /^([^%]|%[\da-f]{2})*$/i.test(part),
  );
  const isSplit = unsupported !== undefined && (rest!.includes("@") || !/^\w+$/.test(unsupported));
  if (!isEncoded || isSplit || url.hash !== "" || url.pathname.includes("@")) return notEncoded;
  if (unsupported !== undefined) {
    return `has the parameter ${unsupported}, which is not supported: ${advice[unsupported] ?? "remove it"}`;
  }
  const { application_name = "parley", host = url.hostname, sslrootcert } = parameters;
  if (host.includes(",")) return several;
  const { sslmode = sslrootcert === "system" ? "verify-full" : "prefer" } = parameters;
  // libpq does not encrypt Unix sockets, whatever the mode.
  const mode = /^(\/|%2f)/i.test(host) ? 0 : modes.indexOf(sslmode);
  if (mode === -1) return `has an unknown sslmode: it must be one of ${modes.join(", ")}`;
  const isVerified = mode >= 3;
  const options: tls.ConnectionOptions = { rejectUnauthorized: isVerified };
  if (sslmode === "verify-ca") options.checkServerIdentity = () => undefined;
  if (isVerified && sslrootcert !== undefined) {
    try {
      options.ca =
        sslrootcert === "system"
          ? tls.getCACertificates("system")
          : readFileSync(sslrootcert, "utf8");
      // TLS ignores what is not a certificate.
      if (typeof options.ca === "string") new X509Certificate(options.ca);
    } catch {
      return "has an sslrootcert that is not a readable file of certificates (PEM)";
    }
  }
  return {
    url: Redacted.make(url.href),
    applicationName: application_name,
    ssl: mode < 2 ? false : options,
    other: mode === 1 ? options : mode === 2 ? false : null,
    isVerified,
    ignoresAuthority: sslrootcert !== undefined && !isVerified,
  };
};

const transports = new WeakMap<Redacted.Redacted, Transport | string>();

const readOnce = (url: Redacted.Redacted) => {
  const read = transports.get(url) ?? readAddress(Redacted.value(url));
  transports.set(url, read);
  return read;
};

/** What is wrong with an address, to follow its name, without any part of a password; `null` for nothing. */
export const addressProblem = (url: Redacted.Redacted): string | null => {
  const read = readOnce(url);
  return typeof read === "string" ? read : null;
};

/** How to connect to an address without {@link addressProblem}. Its connections share what a failure taught. */
export const transportOf = (url: Redacted.Redacted): Transport => {
  const read = readOnce(url);
  if (typeof read === "string") throw new Error(`The address ${read}.`);
  return read;
};

/** How the latest connections to an address are encrypted. */
export const securityOf = (url: Redacted.Redacted): string => {
  const { ignoresAuthority, isVerified, ssl } = transportOf(url);
  const ignored = ignoresAuthority ? " (sslrootcert is ignored: set sslmode=verify-full)" : "";
  return (ssl === false ? "plain text" : `${isVerified ? "verified" : "unverified"} TLS`) + ignored;
};

/** Whether the next connection to the address is made with or without TLS because of an error of the latest. */
export const fallBack = (url: Redacted.Redacted, error: unknown): boolean => {
  const transport = transportOf(url);
  const { other, ssl } = transport;
  if (other === null || !SqlError.isSqlError(error) || error.reason.operation !== "connect") {
    return false;
  }
  // 28000: no line of pg_hba.conf allows this way.
  const isTlsRefused = error.message.includes("refused TLS") || codeOf(error).startsWith("ERR_SSL");
  if (!isTlsRefused && codeOf(error) !== "28000") return false;
  // Of several connections that fail at the same time, the first one has changed it already.
  if (!(isTlsRefused && ssl === false)) Object.assign(transport, { ssl: other, other: ssl });
  return true;
};

/** Why a connection failed, with what the operator can do about it. */
export const describeFailure = (error: SqlError.SqlError): string => {
  const message = describeCause(error);
  const code = codeOf(error);
  if (/SELF_SIGNED|UNABLE_TO_(GET|VERIFY)/.test(code)) {
    return `${message}: name the certificate of its authority in sslrootcert=<file> of the address or in NODE_EXTRA_CA_CERTS`;
  }
  if (code === "ERR_TLS_CERT_ALTNAME_INVALID") {
    return `${message} Name another host, or set sslmode=verify-ca`;
  }
  return message.includes("unsupported startup parameter")
    ? `${message}: a pooler needs PARLEY_POOLER=true, and a migration PostgreSQL's own address (docs/scaling.md)`
    : message;
};
