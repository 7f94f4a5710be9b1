import * as PgClient from "@effect/sql-pg/PgClient";
import { Effect, type Redacted } from "effect";
import { Reactivity } from "effect/reactivity";
import type { SqlClient } from "effect/sql";

/** Runs statements on a connection of their own. */
export const query = <A, E, R>(
  url: Redacted.Redacted,
  use: (sql: SqlClient.SqlClient) => Effect.Effect<A, E, R>,
) =>
  Effect.flatMap(PgClient.make({ url, connectTimeout: "2 seconds" }), use).pipe(
    Effect.scoped,
    Effect.provide(Reactivity.layer),
  );
