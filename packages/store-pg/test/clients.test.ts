import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { Reactivity } from "effect/reactivity";
import { makePools } from "../src/database/PgPools.ts";
import { freshDatabase } from "./PostgresUnderTest.ts";

for (const rowSecurity of [false, true]) {
  // The planner expects pages of many chats to be dear. They are not, and to compile one takes a hundred times as
  // long as to run it. And under another isolation, who waited for a lock does not see what its holder wrote.
  it.live(`no setting of a database reaches the statements (row security: ${rowSecurity})`, () =>
    Effect.gen(function* () {
      const { name, sql, url } = yield* freshDatabase();
      yield* sql.unsafe(`alter database ${name} set jit = on`);
      yield* sql.unsafe(`alter database ${name} set default_transaction_isolation = serializable`);
      for (const limit of ["statement", "lock", "idle_in_transaction_session"]) {
        yield* sql.unsafe(`alter database ${name} set ${limit}_timeout = '7s'`);
      }
      const options = { url, schema: "parley", maxConnections: 1, rowSecurity };
      const { bulk, operations, reads, writes } = yield* makePools(options);
      const sessions = {
        operations: [operations, "0", "0", "0"],
        bulk: [bulk, "10s", "0", "30s"],
        reads: [reads, "30s", "0", "30s"],
        writes: [writes, "30s", "2s", "5s"],
      } as const;
      for (const [name, [session, ...timeouts]] of Object.entries(sessions)) {
        const shown = yield* session.query(
          "operator",
          `select current_setting('jit') as jit, current_setting('transaction_isolation') as isolation,
            array[current_setting('statement_timeout'), current_setting('lock_timeout'),
              current_setting('idle_in_transaction_session_timeout')] as timeouts`,
        );
        assert.deepStrictEqual(
          shown,
          [{ jit: "off", isolation: "read committed", timeouts }],
          name,
        );
      }
    }).pipe(Effect.provide(Reactivity.layer), Effect.scoped),
  );
}
