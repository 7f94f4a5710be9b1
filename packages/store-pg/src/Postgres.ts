/**
 * The stores as layers, and what a database must be before they serve.
 */
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  reasonOf,
  TurnStore,
} from "@parley/core";
import { Context, Effect, Layer, Stream, type Redacted, type Scope } from "effect";
import { Reactivity } from "effect/reactivity";
import { SqlClient, SqlError } from "effect/sql";
import { makeClients, makeMigrator, type Clients } from "./Clients.ts";
import { makeCreations } from "./Creations.ts";
import { makeHints } from "./Hints.ts";
import { letIn, letInSql } from "./LetIn.ts";
import * as Migrations from "./migrations/Migrator.ts";
import { makeChatArchive } from "./archive/PgChatArchive.ts";
import { makeChatbotDirectory } from "./registry/PgChatbotDirectory.ts";
import { makeChatbotRegistry } from "./registry/PgChatbotRegistry.ts";
import { makeChatStore } from "./PgChatStore.ts";
import { makeTurnStore } from "./PgTurnStore.ts";
import { cannotBeUsed, PostgresUnusable } from "./PostgresUnusable.ts";
import { databaseMustFit, roleMustFit, writing, type Writing } from "./Requirements.ts";

export interface PostgresOptions {
  readonly url: Redacted.Redacted;
  /**
   * The connection of the role that owns the tables, if another serves: it migrates, and lets the role of
   * `url` in.
   */
  readonly migrationUrl?: Redacted.Redacted | undefined;
  /**
   * Whether PostgreSQL's row-level security keeps the chatbots apart, too, `false` by default: each
   * statement is then a transaction that says whose rows it is about. The role of `url` must be neither
   * superuser nor owner of the tables nor one that bypasses row security.
   */
  readonly rowSecurity?: boolean | undefined;
  /** Where the tables are; `parley` by default. It is made when it does not exist. */
  readonly schema?: string | undefined;
  /**
   * Connections for reads, and as many for writes; 10 by default. Up to two more read long lists, two
   * erase, each export and import has one for as long as it goes on, and one listens.
   * One that was opened more than half a minute ago is replaced when it is next used, so that for moments there can be twice
   * as many.
   */
  readonly maxConnections?: number | undefined;
  /**
   * Whether to listen for what other processes tell, `true` by default. Behind a pooler that cannot
   * listen it must be `false`: then keys and turns of other processes are seen by asking again.
   */
  readonly listen?: boolean | undefined;
  /**
   * Whether connections keep the plans of their statements, `true` by default. Behind a pooler that lends a
   * connection for one transaction and knows nothing of prepared statements it must be `false`.
   */
  readonly prepare?: boolean | undefined;
}

type Settings = ReturnType<typeof withDefaults>;

const withDefaults = (options: PostgresOptions) => ({
  ...options,
  schema: options.schema ?? "parley",
  rowSecurity: options.rowSecurity ?? false,
  maxConnections: options.maxConnections ?? 10,
});

/** Runs statements on a connection of whoever migrates. */
const asMigrator = <A, E, R>(settings: Settings, statements: Effect.Effect<A, E, R>) =>
  Effect.provideServiceEffect(
    statements,
    SqlClient.SqlClient,
    makeMigrator({ ...settings, url: settings.migrationUrl ?? settings.url }),
  );

/** All the SQL that {@link layerPostgres} would run to bring the schema up to date; empty when it is. */
export const pendingSql = (options: PostgresOptions): Effect.Effect<string, PostgresUnusable> => {
  const settings = withDefaults(options);
  return asMigrator(
    settings,
    Effect.gen(function* () {
      yield* databaseMustFit(settings.schema);
      const text = yield* Migrations.pendingSql;
      if (text === "") yield* Migrations.foldMustFit;
      return text;
    }),
  ).pipe(onceUsable);
};

/** What a server would find in the database. */
export interface Inspection {
  /** Of PostgreSQL, such as `18.4`. */
  readonly version: string;
  readonly encoding: string;
  /** What keeps the server's role from writing, if anything does. */
  readonly writing: Writing;
  /** Whether the schema is up to date. */
  readonly current: boolean;
  /** Why a server would refuse to serve, although the database could be looked at; `null` if it would not. */
  readonly refusal: string | null;
}

const refusalOf = <R>(requirement: Effect.Effect<void, PostgresUnusable | SqlError.SqlError, R>) =>
  requirement.pipe(
    Effect.as(null),
    Effect.catchTag("PostgresUnusable", ({ message }) => Effect.succeed(message)),
  );

/** Looks at the database as {@link layerPostgres} does, and writes nothing. */
export const inspectPostgres = (
  options: PostgresOptions,
): Effect.Effect<Inspection, PostgresUnusable> =>
  Effect.gen(function* () {
    const settings = withDefaults(options);
    const { patient } = yield* makeClients({ ...settings, maxConnections: 1 });
    const look = Effect.gen(function* () {
      const server = yield* databaseMustFit(settings.schema);
      const current = (yield* Migrations.pendingSql) === "";
      const refusal = current ? yield* refusalOf(Migrations.foldMustFit) : null;
      return { ...server, current, refusal };
    });
    const found = yield* asMigrator(settings, look);
    const refusal = found.current ? yield* refusalOf(roleMustFit(patient, settings)) : null;
    return { ...found, refusal: found.refusal ?? refusal, writing: yield* writing(patient) };
  }).pipe(onceUsable);

/**
 * The SQL by which {@link layerPostgres} would let the server's role in, once the schema is up to date; empty
 * when it is in or is the one that migrates.
 */
export const lettingInSql = (options: PostgresOptions): Effect.Effect<string, PostgresUnusable> =>
  Effect.gen(function* () {
    if (options.migrationUrl === undefined) return "";
    const settings = withDefaults(options);
    const server = yield* makeMigrator(settings);
    const [at] = yield* server.unsafe<Place>(place);
    return yield* asMigrator(settings, letInSql(at!.role, settings.rowSecurity));
  }).pipe(onceUsable);

/** All the stores of the core in one PostgreSQL database, 15 or later, brought up to date first. */
export const layerPostgres = (
  options: PostgresOptions,
): Layer.Layer<
  ChatStore | TurnStore | ChatArchive | ChatbotDirectory | ChatbotRegistry,
  PostgresUnusable
> =>
  Layer.effectContext(
    Effect.gen(function* () {
      const settings = withDefaults(options);
      const clients = yield* makeClients(settings);
      yield* bringUpToDate(settings, clients);
      yield* roleMustFit(clients.patient, settings);
      const hints =
        settings.listen === false ? () => Stream.empty : yield* makeHints(clients.listener);
      const make = yield* makeCreations(clients);
      return Context.make(ChatStore, yield* makeChatStore(clients, make)).pipe(
        Context.add(TurnStore, yield* makeTurnStore(clients, make, hints, settings.schema)),
        Context.add(ChatArchive, makeChatArchive(clients)),
        Context.add(ChatbotDirectory, makeChatbotDirectory(clients, hints)),
        Context.add(ChatbotRegistry, makeChatbotRegistry(clients)),
      );
    }).pipe(unusable),
  ).pipe(Layer.provide(Reactivity.layer));

/** Brings the schema up to date and lets the server's role in, if it is another than the owner's. */
const bringUpToDate = (settings: Settings, { patient }: Clients) =>
  asMigrator(
    settings,
    Effect.gen(function* () {
      yield* databaseMustFit(settings.schema);
      const server =
        settings.migrationUrl === undefined ? null : yield* patient.query<Place>("operator", place);
      if (server !== null) {
        const sql = yield* SqlClient.SqlClient;
        const [owner] = yield* sql.unsafe<Place>(place);
        if (server[0]!.database !== owner!.database) {
          return yield* cannotBeUsed(
            "its two addresses lead to different databases, and both must name one",
          );
        }
      }
      yield* Migrations.migrate;
      yield* Migrations.foldMustFit;
      if (server !== null) yield* letIn(server[0]!.role, settings.rowSecurity);
    }),
  ).pipe(Effect.scoped);

/** As whom a connection is where; a name alone may be that of a database elsewhere. */
interface Place {
  readonly role: string;
  readonly database: string;
}

const place = `
select current_user as role, concat(oid, ' ', extract(epoch from pg_postmaster_start_time())) as database
from pg_database where datname = current_database()`;

const unusable = <A, E extends { readonly cause?: unknown }, R>(
  effect: Effect.Effect<A, E | PostgresUnusable, R>,
): Effect.Effect<A, PostgresUnusable, R> =>
  effect.pipe(
    // So ends a transaction whose ROLLBACK fails, because the connection is lost.
    Effect.catchDefect((defect) =>
      SqlError.isSqlError(defect) ? cannotBeUsed(reasonOf(defect), defect) : Effect.die(defect),
    ),
    Effect.mapError((error) =>
      error instanceof PostgresUnusable ? error : cannotBeUsed(reasonOf(error), error),
    ),
  );

/** The same for what needs the database only until it is done. */
const onceUsable = <A, E extends { readonly cause?: unknown }>(
  effect: Effect.Effect<A, E | PostgresUnusable, Scope.Scope | Reactivity.Reactivity>,
): Effect.Effect<A, PostgresUnusable> =>
  effect.pipe(Effect.scoped, Effect.provide(Reactivity.layer), unusable);
