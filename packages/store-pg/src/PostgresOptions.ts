import { optionsOf } from "@parley/core/ports";
import type { Redacted } from "effect";

/** The options of a PostgreSQL store. */
export interface PostgresOptions {
  /**
   * `postgres://user:password@host:5432/database`. If it leads to a pooler in transaction mode, such as PgBouncer,
   * connections prepare no statements, and send no settings, which must be set for the role instead.
   */
  readonly url: Redacted.Redacted;
  /**
   * Returns the present address each time that a connection is opened, for a user or a password that changes while the
   * store is open. If it returns `undefined` or an invalid address, `url` is used.
   */
  readonly readUrl?: (() => Redacted.Redacted | undefined) | undefined;
  /** The PEM certificates of the authorities that `sslrootcert` in the URL names. */
  readonly authorities?: string | Array<string> | undefined;
  /** The schema that contains the tables, `parley` by default; created if it does not exist. */
  readonly schema?: string | undefined;
  /**
   * The maximum number of connections, 12 by default and at least 5: two for reads, two for long lists, the rest for
   * writes. Each export, import, erasure, usage report, measurement of the chatbots' sizes (one every ten minutes),
   * reading of a user's audit log and probe of a database that is busy or fails opens one more, and startup opens up to two.
   */
  readonly maxConnections?: number | undefined;
  /**
   * Whether startup advances the id sequences if necessary, and warns about a read-only database, too few connections or
   * differing clocks; `true` by default. If `false`, the first write that needs an id advances the sequences.
   */
  readonly advanceSequences?: boolean | undefined;
}

export const optionNames = {
  url: true,
  readUrl: false,
  authorities: false,
  schema: false,
  maxConnections: false,
  advanceSequences: false,
} as const;

export const withDefaults = (options: PostgresOptions) => ({
  schema: "parley",
  maxConnections: 12,
  ...optionsOf("layerPostgres", options, optionNames),
});
