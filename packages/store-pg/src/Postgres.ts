import * as PgClient from "@effect/sql-pg/PgClient";
import {
  ChatArchive,
  ChatStore,
  TurnStore,
  type ChatbotDirectory,
  type ChatbotRegistry,
} from "@parley/core";
import { Context, Data, Effect, Layer, Stream, type Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import { SqlClient } from "effect/sql";
import { makeHints } from "./Hints.ts";
import { migrate, migrations, pending } from "./Migrations.ts";
import { makePasses, passConnections } from "./Passes.ts";
import { makeChatArchive } from "./PgChatArchive.ts";
import { makeChatbots } from "./PgChatbots.ts";
import { makeChatStore } from "./PgChatStore.ts";
import { makeTurnStore } from "./PgTurnStore.ts";

export interface PostgresOptions {
  readonly url: Redacted.Redacted;
  /** Where the tables are; `parley` by default. It is made when it does not exist. */
  readonly schema?: string | undefined;
  /** Connections for statements, 10 by default; up to six more read long lists, and one listens. */
  readonly maxConnections?: number | undefined;
  /**
   * Whether to listen for what other processes tell, `true` by default. Behind a pooler that cannot
   * listen it must be `false`: then keys and turns of other processes are seen by asking again.
   */
  readonly listen?: boolean | undefined;
}

/** The database cannot be used; the message says why, in one line. */
export class PostgresUnusable extends Data.TaggedError("PostgresUnusable")<{
  readonly message: string;
  readonly cause?: unknown;
}> {}

const configOf = ({ schema = "parley", url }: PostgresOptions) => ({
  url,
  applicationName: "parley",
  connectTimeout: "5 seconds" as const,
  startupParameters: {
    search_path: `"${schema.replaceAll('"', '""')}"`,
    statement_timeout: "30s",
    // A client that vanished in the middle of a transaction must not keep its locks.
    idle_in_transaction_session_timeout: "30s",
  },
});

/** A client for what takes its time: migrations, erasures, exports and imports. */
const makePatient = (options: PostgresOptions) => {
  const config = configOf(options);
  return PgClient.make({
    ...config,
    maxConnections: 2,
    startupParameters: {
      ...config.startupParameters,
      statement_timeout: "0",
      idle_in_transaction_session_timeout: "0",
    },
  });
};

/** The SQL that {@link layerPostgres} would run to bring the schema up to date; empty when it is. */
export const pendingSql = (options: PostgresOptions): Effect.Effect<string, PostgresUnusable> =>
  Effect.gen(function* () {
    const sql = yield* makePatient(options);
    const names = yield* Effect.provideService(
      Effect.andThen(check, pending),
      SqlClient.SqlClient,
      sql,
    );
    return names.map((name) => `-- ${name}${migrations[name]}\n`).join("\n");
  }).pipe(Effect.scoped, Effect.provide(Reactivity.layer), unusable);

/** All the stores of the core in one PostgreSQL database, 15 or later, brought up to date first. */
export const layerPostgres = (
  options: PostgresOptions,
): Layer.Layer<
  ChatStore | TurnStore | ChatArchive | ChatbotDirectory | ChatbotRegistry,
  PostgresUnusable
> =>
  Layer.effectContext(
    Effect.gen(function* () {
      const config = configOf(options);
      const { listen = true, maxConnections = 10 } = options;
      const sql = yield* PgClient.make({ ...config, maxConnections, multiplex: true });
      const patient = yield* makePatient(options);
      const passes = yield* PgClient.make({
        ...config,
        maxConnections: passConnections,
        startupParameters: {
          ...config.startupParameters,
          statement_timeout: "10s",
          // What a search finds decides how it is best done.
          plan_cache_mode: "force_custom_plan",
        },
      });
      yield* Effect.provideService(Effect.andThen(check, migrate), SqlClient.SqlClient, patient);

      const listener = yield* PgClient.make({ ...config, maxConnections: 1 });
      const hints = listen
        ? yield* Effect.provideService(makeHints, PgClient.PgClient, listener)
        : () => Stream.empty;
      const archive = yield* Effect.provideService(makeChatArchive, SqlClient.SqlClient, patient);
      const stores = Effect.gen(function* () {
        return Context.make(ChatStore, yield* makeChatStore(makePasses(passes))).pipe(
          Context.add(TurnStore, yield* makeTurnStore(hints)),
          Context.add(ChatArchive, archive),
          Context.merge(yield* makeChatbots(hints)),
        );
      });
      return yield* Effect.provideService(stores, SqlClient.SqlClient, sql);
    }).pipe(unusable),
  ).pipe(Layer.provide(Reactivity.layer));

/** Texts of any language must fit, and the statements need what PostgreSQL 15 brought. */
const check = Effect.gen(function* () {
  const sql = yield* SqlClient.SqlClient;
  const [server] = yield* sql.unsafe<{ readonly encoding: string; readonly version: number }>(
    `select current_setting('server_encoding') as encoding,
      current_setting('server_version_num')::int as version`,
  );
  const { encoding, version } = server!;
  if (encoding !== "UTF8") {
    return yield* new PostgresUnusable({
      message: `The database's encoding is ${encoding}, but Parley needs one with UTF8.`,
    });
  }
  if (version < 150_000) {
    return yield* new PostgresUnusable({
      message: `The database is PostgreSQL ${Math.floor(version / 10_000)}, but Parley needs 15 or later.`,
    });
  }
});

const unusable = <A, E extends { readonly cause?: unknown }, R>(
  effect: Effect.Effect<A, E | PostgresUnusable, R>,
): Effect.Effect<A, PostgresUnusable, R> =>
  Effect.mapError(effect, (error) =>
    error instanceof PostgresUnusable
      ? error
      : new PostgresUnusable({
          message: `The database cannot be used: ${reasonOf(error)}.`,
          cause: error,
        }),
  );

/** The innermost reason, on one line, without the statement. */
const reasonOf = (error: { readonly cause?: unknown }): string => {
  let inner: unknown = error;
  while (
    typeof inner === "object" &&
    inner !== null &&
    "cause" in inner &&
    inner.cause instanceof Object
  ) {
    inner = inner.cause;
  }
  return (inner instanceof Error ? inner.message : String(inner)).replace(/\s+/g, " ");
};
