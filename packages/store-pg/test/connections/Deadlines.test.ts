import { assert, it } from "@effect/vitest";
import { turnLease } from "@parley/core/ports";
import { deadlines } from "../../src/connections/Deadlines.ts";

const limit = deadlines;

/** The limits in the order in which they must expire. */
const orders: Readonly<Record<string, ReadonlyArray<number>>> = {
  "a write gives up on a lock before PostgreSQL cancels the statement": [
    limit.writeLock,
    limit.statement,
  ],
  "a statement that waits behind a migration outlasts it": [limit.migrationLock, limit.statement],
  "PostgreSQL cancels a slow statement before its connection counts as dead": [
    limit.statement,
    limit.silence,
  ],
  "a silent connection counts as dead before its checkout fails, and that before the call of the store does":
    [limit.silence, limit.checkout, limit.storeCall],
  "work without a database fails because no connection can be opened, not because it waited too long":
    [limit.connect, limit.checkout],
  "an unavailable database is noticed before a request gives up": [
    1_000 + limit.probe + limit.probeOnNewConnection,
    limit.storeCall,
  ],
  "four attempts of the registry last longer than the transaction of a vanished process": [
    limit.idleTransaction,
    4 * limit.writeLock,
  ],
  "a turn can be renewed before its lease ends": [limit.storeCall, turnLease],
  "a connection outlasts the longest work on it": [limit.bulk, limit.connectionAge],
};

it("each time limit expires before the limits that rely on it", () => {
  for (const [promise, limits] of Object.entries(orders)) {
    for (const [at, limit] of limits.slice(1).entries()) {
      assert.isBelow(limits[at]!, limit, promise);
    }
  }
  const all = Object.values(deadlines);
  assert.deepStrictEqual(
    all,
    all.toSorted((a, b) => a - b),
    "the table is ascending",
  );
});
