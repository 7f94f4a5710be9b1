/**
 * A database of its own on the run's shared PostgreSQL, for servers that share it, and a way to its rows.
 */
import * as PgClient from "../packages/store-pg/node_modules/@effect/sql-pg/dist/PgClient.js";
import { Effect, Exit, Redacted, Scope } from "effect";
import { Reactivity } from "effect/reactivity";

export interface Database {
  readonly url: string;
  /** Settings that make a server use it. */
  readonly environment: Readonly<Record<string, string>>;
  /** Runs a statement on a connection of the test's own; numbers of 64 bits come as `bigint`. */
  readonly rows: <Row extends object>(
    statement: string,
    values?: ReadonlyArray<unknown>,
  ) => Promise<ReadonlyArray<Row>>;
  /** Removes it; whoever is still connected is thrown out. */
  readonly remove: () => Promise<void>;
}

let databases = 0;

/** Makes an empty one on the server that `sharedUrl` names. */
export const makeDatabase = async (sharedUrl: string): Promise<Database> => {
  const name = `faults_${process.pid}_${Date.now()}_${++databases}`;
  const url = new URL(sharedUrl);
  url.pathname = `/${name}`;
  const scope = Scope.makeUnsafe();
  const connect = (to: string) =>
    PgClient.make({
      url: Redacted.make(to),
      applicationName: "parley-faults",
      maxConnections: 2,
      startupParameters: { search_path: "parley" },
    }).pipe(Effect.provide(Reactivity.layer), Scope.provide(scope), Effect.runPromise);
  const shared = await connect(sharedUrl);
  await Effect.runPromise(shared.unsafe(`create database ${name}`));
  const own = await connect(url.href);
  return {
    url: url.href,
    environment: { PARLEY_STORE: "postgres", DATABASE_URL: url.href },
    rows: <Row extends object>(statement: string, values: ReadonlyArray<unknown> = []) =>
      Effect.runPromise(own.unsafe<Row>(statement, values)),
    remove: async () => {
      await Effect.runPromise(shared.unsafe(`drop database ${name} with (force)`));
      await Effect.runPromise(Scope.close(scope, Exit.void));
    },
  };
};
