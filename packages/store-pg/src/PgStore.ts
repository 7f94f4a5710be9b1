/**
 * The stores as layers, and what a database must be before they serve.
 */
import {
  ChatArchive,
  ChatbotDirectory,
  ChatbotRegistry,
  ChatStore,
  describeCause,
  TurnStore,
} from "@parley/core";
import { Context, Effect, Layer, Stream, type Redacted, type Scope } from "effect";
import { Reactivity } from "effect/reactivity";
import { SqlClient, type SqlError } from "effect/sql";
import { makeChatArchive } from "./archive/PgChatArchive.ts";
import { makeChatCreation } from "./chats/ChatCreation.ts";
import { makeMigrator, makePools } from "./database/PgPools.ts";
import { databaseMustFit, roleMustFit, writing, type Writing } from "./database/ServerChecks.ts";
import { makeNotifications } from "./database/Notifications.ts";
import * as Migrator from "./migrations/Migrator.ts";
import { makeChatbotDirectory } from "./registry/PgChatbotDirectory.ts";
import { makeChatbotRegistry } from "./registry/PgChatbotRegistry.ts";
import { makeChatStore } from "./PgChatStore.ts";
import { cannotBeUsed, PostgresUnusable } from "./PostgresUnusable.ts";
import { makeTurnStore } from "./turns/PgTurnStore.ts";

export interface PostgresOptions {
  readonly url: Redacted.Redacted;
  /**
   * Whether PostgreSQL's row-level security keeps the chatbots apart, too, `false` by default: each statement is then
   * sent with its tenant. The role of `url` must be one that it binds, so no superuser, not the owner of the tables, and
   * none that bypasses it.
   */
  readonly rowSecurity?: boolean | undefined;
  /** Where the tables are; `parley` by default. It is created if it does not exist. */
  readonly schema?: string | undefined;
  /**
   * Connections, 12 by default and 6 at least: two read, two do what takes long, one listens, and the others write. With row
   * security those that read are half of those that read or write. Each export and import has one more for as long as it goes
   * on, and migrations one while the store starts.
   */
  readonly maxConnections?: number | undefined;
  /**
   * Whether to listen for notifications of other processes, `true` by default. Behind a pooler that cannot listen it must
   * be `false`: then keys and turns of other processes are seen by polling.
   */
  readonly listen?: boolean | undefined;
  /**
   * Whether connections keep the plans of their statements, `true` by default. Behind a pooler that lends a connection for
   * one transaction and knows nothing of prepared statements it must be `false`.
   */
  readonly prepare?: boolean | undefined;
}

const withDefaults = (options: PostgresOptions) => ({
  ...options,
  schema: options.schema ?? "parley",
  rowSecurity: options.rowSecurity ?? false,
  maxConnections: options.maxConnections ?? 12,
});

type Settings = ReturnType<typeof withDefaults>;

/** Runs statements on a connection for migrations. */
const asMigrator = <A, E, R>(settings: Settings, statements: Effect.Effect<A, E, R>) =>
  Effect.scoped(
    Effect.provideServiceEffect(statements, SqlClient.SqlClient, makeMigrator(settings)),
  );

const bringUpToDate = (settings: Settings) =>
  asMigrator(
    settings,
    Effect.gen(function* () {
      yield* databaseMustFit(settings.schema);
      yield* Migrator.migrate(settings.schema);
      yield* Migrator.foldMustFit;
    }),
  );

/** Brings the schema up to date, as {@link layerPostgres} does, whether or not the role may serve. */
export const migratePostgres = (options: PostgresOptions): Effect.Effect<void, PostgresUnusable> =>
  onceUsable(bringUpToDate(withDefaults(options)));

/** All the SQL that {@link migratePostgres} would run; empty when the schema is up to date. */
export const pendingSql = (options: PostgresOptions): Effect.Effect<string, PostgresUnusable> => {
  const settings = withDefaults(options);
  return onceUsable(
    asMigrator(
      settings,
      Effect.andThen(databaseMustFit(settings.schema), Migrator.pendingSql(settings.schema)),
    ),
  );
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

/** Looks at the database as {@link layerPostgres} does, and writes nothing. */
export const inspectPostgres = (
  options: PostgresOptions,
): Effect.Effect<Inspection, PostgresUnusable> =>
  Effect.gen(function* () {
    const settings = withDefaults(options);
    const { bulk } = yield* makePools(settings);
    const look = Effect.gen(function* () {
      const server = yield* databaseMustFit(settings.schema);
      return { ...server, current: (yield* Migrator.pendingSql(settings.schema)) === "" };
    });
    const found = yield* asMigrator(settings, look);
    const checked = Effect.andThen(
      asMigrator(settings, Migrator.foldMustFit),
      roleMustFit(bulk, settings),
    );
    const refusal = found.current
      ? yield* checked.pipe(
          Effect.as(null),
          Effect.catchTag("PostgresUnusable", ({ message }) => Effect.succeed(message)),
        )
      : null;
    return { ...found, refusal, writing: yield* writing(bulk) };
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
      const pools = yield* makePools(settings);
      yield* bringUpToDate(settings);
      yield* roleMustFit(pools.bulk, settings);
      const notifications =
        settings.listen === false ? () => Stream.empty : yield* makeNotifications(pools.listener);
      const creation = yield* makeChatCreation(pools);
      return Context.make(ChatStore, yield* makeChatStore(pools, creation)).pipe(
        Context.add(
          TurnStore,
          yield* makeTurnStore(pools, creation, notifications, settings.schema),
        ),
        Context.add(ChatArchive, makeChatArchive(pools)),
        Context.add(ChatbotDirectory, makeChatbotDirectory(pools, notifications)),
        Context.add(ChatbotRegistry, makeChatbotRegistry(pools)),
      );
    }).pipe(unusable),
  ).pipe(Layer.provide(Reactivity.layer));

const unusable = <A, R>(
  effect: Effect.Effect<A, PostgresUnusable | SqlError.SqlError, R>,
): Effect.Effect<A, PostgresUnusable, R> =>
  Effect.mapError(effect, (error) =>
    error instanceof PostgresUnusable ? error : cannotBeUsed(describeCause(error), error),
  );

/** The same for what needs the database only until it is done. */
const onceUsable = <A>(
  effect: Effect.Effect<
    A,
    PostgresUnusable | SqlError.SqlError,
    Scope.Scope | Reactivity.Reactivity
  >,
): Effect.Effect<A, PostgresUnusable> =>
  effect.pipe(Effect.scoped, Effect.provide(Reactivity.layer), unusable);
