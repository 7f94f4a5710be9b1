import * as PgPool from "@effect/sql-pg/PgPool";
import { assert, it } from "@effect/vitest";
import { Effect } from "effect";
import { makeLending } from "../../src/database/Lending.ts";
import { mapLockTimeout } from "../../src/database/PgErrors.ts";
import { makeRoundRobin } from "../../src/database/RoundRobin.ts";
import { optionsOf } from "../PostgresUnderTest.ts";

for (const turns of [1, 2]) {
  it.live(`work that waits for a connection until its deadline is refused (turns: ${turns})`, () =>
    Effect.gen(function* () {
      const pool = yield* PgPool.make({ ...optionsOf("public"), maxConnections: 1 });
      const options = { cancels: true, turns: makeRoundRobin<number | "operator">(turns) };
      const lending = (deadline: number) =>
        makeLending(pool, { since: 0 }, { ...options, deadline });
      const query = (text: string) => (deadline: number) =>
        mapLockTimeout(lending(deadline).use(1, (connection) => connection.query(text)));
      yield* Effect.forkScoped(query("select pg_sleep(5)")(10_000), { startImmediately: true });
      yield* Effect.sleep("100 millis");
      assert.strictEqual((yield* Effect.flip(query("select 1")(200)))._tag, "Overloaded");
    }),
  );
}
