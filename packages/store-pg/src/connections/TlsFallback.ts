/**
 * Decides for each connection whether it uses TLS. As in libpq, `sslmode=prefer` opens a connection without TLS only if
 * PostgreSQL refused one with TLS, and `sslmode=allow` does the reverse. A refusal decides a single connection: a
 * server that refuses TLS for a moment must not keep a process in plain text.
 */
import type * as PgConnection from "@effect/sql-pg/PgConnection";
import { describeCause } from "@parley/core/ports";
import { Effect } from "effect";
import { SqlError } from "effect/sql";
import { deadlines } from "./Deadlines.ts";
import { codeOf } from "./PgErrors.ts";

export type TlsOptions = Exclude<PgConnection.Config["ssl"], boolean | undefined>;

/** The TLS options of a connection; `false` for plain text. */
export type Tls = false | TlsOptions;

export interface TlsChoice {
  /** The options that the next connection uses, and that the latest one used. */
  readonly next: () => Tls;
  readonly latest: () => Tls;
  /** Must be called whenever a connection is about to be opened with {@link TlsChoice.next}. */
  readonly noteOpening: () => void;
  /** Repeats the work if it failed because PostgreSQL refused a connection with TLS, or one without. */
  readonly withFallback: <A, E, R>(work: Effect.Effect<A, E, R>) => Effect.Effect<A, E, R>;
}

// A visible line for each fallback would repeat itself every few seconds if PostgreSQL has no TLS.
const levels = { untried: "Info", accepted: "Warn", refused: "Debug" } as const;

/** Code 28000 means that no line of pg_hba.conf allows this kind of connection. */
const isRefusal = (preferred: Tls, error: unknown): error is SqlError.SqlError => {
  if (!SqlError.isSqlError(error) || error.reason.operation !== "connect") return false;
  const code = codeOf(error);
  const isTlsRefused = error.message.includes("refused TLS") || code.startsWith("ERR_SSL");
  return (isTlsRefused && preferred !== false) || code === "28000";
};

/** @param other the options to try if PostgreSQL refuses a connection with `preferred`; `null` if there are none */
export const makeTlsChoice = (preferred: Tls, other: Tls | null): TlsChoice => {
  /** For each connection that is still to be opened with `other`, the time at which that attempt expires. */
  const fallbacks: Array<number> = [];
  const knownErrors = new WeakSet<SqlError.SqlError>();
  let latest = preferred;
  let lastAttemptAt = -Infinity;
  let lastRefusalAt = -Infinity;
  let state: keyof typeof levels = "untried";

  const next = () => {
    while (fallbacks.length > 0 && fallbacks[0]! < performance.now()) fallbacks.shift();
    return other !== null && fallbacks.length > 0 ? other : preferred;
  };
  const noteOpening = () => {
    latest = next();
    if (fallbacks.shift() !== undefined) return;
    const now = performance.now();
    const wasAccepted = lastAttemptAt > lastRefusalAt && now - lastAttemptAt > deadlines.connect;
    if (wasAccepted) state = "accepted";
    lastAttemptAt = now;
  };
  const noteRefusal = (error: SqlError.SqlError) =>
    Effect.suspend(() => {
      // The pool may report the failure of one connection to several statements.
      if (knownErrors.has(error)) return Effect.void;
      knownErrors.add(error);
      fallbacks.push(performance.now() + deadlines.connect);
      const level = levels[state];
      state = "refused";
      lastRefusalAt = performance.now();
      const [refused, chosen] = preferred === false ? ["without", "with"] : ["with", "without"];
      return Effect.logWithLevel(level)(
        `PostgreSQL refused a connection ${refused} TLS: trying again ${chosen} TLS`,
      ).pipe(Effect.annotateLogs("reason", describeCause(error)));
    });
  /** Another statement's connection may use up a fallback, so one repetition is not always enough. */
  const withFallback = <A, E, R>(work: Effect.Effect<A, E, R>, repetitions = 3): typeof work =>
    other === null || repetitions === 0
      ? work
      : Effect.catchIf(
          work,
          (error) => isRefusal(preferred, error),
          (error) =>
            Effect.andThen(
              noteRefusal(error as SqlError.SqlError),
              withFallback(work, repetitions - 1),
            ),
        );
  return { next, latest: () => latest, noteOpening, withFallback: (work) => withFallback(work) };
};
