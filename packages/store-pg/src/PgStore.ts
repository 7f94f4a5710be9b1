/**
 * The store as a layer, and operations on its schema.
 */
import {
  optionsOf,
  StoreState,
  storeOf,
  textOf,
  type Store,
  type StorePorts,
} from "@parley/core/ports";
import { Context, Effect, Layer, Redacted } from "effect";
import { SqlClient, type SqlError } from "effect/sql";
import { makeRows } from "./PgRows.ts";
import { makeChatCreation } from "./chats/ChatCreation.ts";
import { makeListChats } from "./chats/ChatListing.ts";
import { makeListEntries } from "./chats/EntryListing.ts";
import { describeFailure, transportOf } from "./connections/DatabaseAddress.ts";
import { cannotBeUsed, PostgresUnusable } from "./connections/PgErrors.ts";
import {
  detectPooler,
  makeMigrationClient,
  makePools,
  type PgPools,
} from "./connections/PgPools.ts";
import { checkDatabase } from "./connections/ServerChecks.ts";
import { optionNames, type PostgresOptions, withDefaults } from "./PostgresOptions.ts";
import * as Migrator from "./migrations/Migrator.ts";
import { makeTurnStore } from "./turns/PgTurnStore.ts";

/** Checks the database, and runs `work` on separate connections, which are closed afterwards. */
const onConnection = <A, R>(
  options: PostgresOptions,
  work: (
    settings: ReturnType<typeof withDefaults>,
    database: Effect.Success<ReturnType<typeof checkDatabase>>,
  ) => Effect.Effect<A, PostgresUnusable | SqlError.SqlError, R>,
) => {
  const settings = withDefaults(options);
  const transport = transportOf(settings.url);
  if (typeof transport === "string") return Effect.fail(cannotBeUsed(`its URL ${transport}`));
  if (transport.authorities !== undefined && settings.authorities === undefined) {
    return Effect.fail(
      cannotBeUsed("its URL has `sslrootcert`, but the option `authorities` is not set"),
    );
  }
  return detectPooler(settings).pipe(
    Effect.flatMap((isPooler) =>
      checkDatabase(settings.schema, isPooler).pipe(
        Effect.flatMap((database) => work(settings, database)),
        Effect.provideServiceEffect(SqlClient.SqlClient, makeMigrationClient(settings)),
      ),
    ),
    Effect.scoped,
    // The client's spans would name the wrong database, because the client does not read the name in the URL.
    Effect.withTracerEnabled(false),
    transport.tls.withFallback,
    toUnusable,
  );
};

/** Brings the schema up to date, as {@link layerPostgres} does. The role need not be suitable for a server. */
export const migratePostgres = (options: PostgresOptions): Effect.Effect<void, PostgresUnusable> =>
  onConnection(options, ({ schema }) => Migrator.migrate(schema));

/** Returns the SQL of the missing migrations; empty if the schema is up to date. */
export const pendingSql = (options: PostgresOptions): Effect.Effect<string, PostgresUnusable> =>
  onConnection(options, ({ schema }) => Migrator.pendingSql(schema));

/** The state of the database. */
export interface Inspection {
  /** The version of PostgreSQL, such as `18.4`. */
  readonly version: string;
  readonly encoding: string;
  /** The `lc_ctype` of the database: with `C`, the search index recognizes only ASCII letters. */
  readonly ctype: string;
  /** Whether the schema is up to date. */
  readonly current: boolean;
  /** Why a server would refuse to start with this schema and this role; `null` if no reason was found. */
  readonly refusal: string | null;
  /**
   * What a server would warn about at startup: a read-only database, too few connections, differing clocks, or ids that
   * could be reused.
   */
  readonly warnings: ReadonlyArray<string>;
}

/** Checks the database as {@link layerPostgres} does, and writes nothing. */
export const inspectPostgres = (
  options: PostgresOptions,
): Effect.Effect<Inspection, PostgresUnusable> =>
  onConnection(
    options,
    Effect.fnUntraced(function* (settings, database) {
      const current = (yield* Migrator.pendingSql(settings.schema)) === "";
      const refusal =
        current || database.mayMigrate
          ? null
          : `The schema is not up to date, and the role "${database.role}" cannot change it: ${Migrator.migrateAsOwner}.`;
      const warnings = current
        ? yield* (yield* makePools(settings)).examine({ starts: false })
        : [];
      const { ctype, encoding, version } = database;
      return { ctype, encoding, version, current, refusal, warnings };
    }),
  );

/** The ports for which a round trip for each verb of the rules would be too slow. */
export const makeHotPorts = Effect.fnUntraced(function* (pools: PgPools) {
  const creation = yield* makeChatCreation(pools);
  const turns = yield* makeTurnStore(pools, creation);
  const [listChats, listEntries] = [makeListChats(pools), makeListEntries(pools)];
  return { chats: { createChat: creation.createChat, listChats, listEntries }, turns };
});

/** A store in a PostgreSQL database (version 15 or later). Building the layer first brings the schema up to date. */
export const layerPostgres = (
  options: PostgresOptions,
): Layer.Layer<StorePorts, PostgresUnusable> => {
  const settings = withDefaults(options);
  return Layer.effectContext(
    Effect.gen(function* () {
      yield* migratePostgres(options);
      const pools = yield* makePools(settings);
      if (settings.advanceSequences !== false) {
        for (const warning of yield* pools.examine({ starts: true }))
          yield* Effect.logWarning(warning);
      }
      return storeOf(makeRows(pools), yield* makeHotPorts(pools)).pipe(
        Context.add(StoreState, { readOnlyReason: pools.readOnlyReason }),
      );
    }).pipe(toUnusable),
  );
};

/** The options of `postgres`. */
export interface PostgresSettings extends Omit<PostgresOptions, "readUrl" | "url"> {
  /** `postgres://user:password@host:5432/database`. */
  readonly url: string;
}

/**
 * Returns a store in a PostgreSQL database (version 15 or later) for `openParley`, which brings the schema up to date
 * and rejects with `PostgresUnusable` if the database cannot be used. `options` is the database's URL, or an object
 * that contains it.
 */
export const postgres = (options: string | PostgresSettings): Store => {
  const settings = typeof options === "string" ? { url: options } : options;
  const { url, ...others } = optionsOf("postgres", settings, optionNames);
  const what = "a URL such as postgres://user:password@host:5432/database";
  return layerPostgres({ ...others, url: Redacted.make(textOf("postgres", url, what)) });
};

const toUnusable = <A, R>(
  effect: Effect.Effect<A, PostgresUnusable | SqlError.SqlError, R>,
): Effect.Effect<A, PostgresUnusable, R> =>
  Effect.mapError(effect, (error) =>
    error instanceof PostgresUnusable ? error : cannotBeUsed(describeFailure(error), error),
  );
