/**
 * A store in the storage of one Durable Object: the rows of `@parley/store-sqlite` over `ctx.storage.sql`.
 */
import { runInOneStep, StorageUnavailable, storeOf, type StorePorts } from "@parley/core/ports";
import { makeRows, makeTx, type Sql, type SqliteTx, tables } from "@parley/store-sqlite/rows";
import type { DurableObjectState } from "cloudflare:workers";
import { Clock, Context, Effect, Exit, Layer, Stream } from "effect";

type DurableStorage = DurableObjectState["storage"];

/** Mistakes in a statement, which are defects. Anything else means that the storage cannot be used now. */
const mistake = /SQLITE_(ERROR|CONSTRAINT|MISMATCH|MISUSE|RANGE)/;
const toFailure = (cause: unknown): Exit.Exit<never, StorageUnavailable> =>
  mistake.test(String(cause)) ? Exit.die(cause) : Exit.fail(new StorageUnavailable({ cause }));

/** Thrown to roll a transaction back. */
class Rollback {
  constructor(exit: Exit.Exit<unknown, unknown>) {
    this.exit = exit;
  }
  readonly exit;
}

/** The store of this object. Several instances of the layer share the object's chats. */
export const layerDurable = (storage: DurableStorage): Layer.Layer<StorePorts> => {
  const all: Sql["all"] = <Row>(statement: string, values: ReadonlyArray<unknown> = []) =>
    storage.sql
      .exec(statement, ...values)
      .toArray()
      .map(toRow) as Array<unknown> as Array<Row>;
  const sql: Sql = {
    all,
    run: (statement, values) => {
      all(statement, values);
      return all<{ count: number }>("SELECT changes() AS count")[0]!.count;
    },
    toFailure,
    onErasure: () => {},
    onSnapshot: (body) => body(),
    background: {
      read: (queries) => Effect.sync(() => queries.map((query) => all(...query))),
      snapshot: Effect.succeed((query) => Effect.sync(() => all(...query))),
    },
  };
  /** Runs the body in one synchronous step. The platform confirms nothing to a client before the step is durable. */
  const transact = <A, E, R>(body: (tx: SqliteTx) => Effect.Effect<A, E, R>) =>
    Effect.contextWith((context: Context.Context<R>): Effect.Effect<A, E | StorageUnavailable> => {
      const clock = Context.get(context as Context.Context<never>, Clock.Clock);
      try {
        return storage.transactionSync(() => {
          const exit = runInOneStep(
            body(makeTx(sql, () => clock.currentTimeMillisUnsafe())),
            context,
          );
          if (Exit.isFailure(exit)) throw new Rollback(exit);
          return exit;
        });
      } catch (thrown) {
        return thrown instanceof Rollback
          ? (thrown.exit as Exit.Exit<never, E>)
          : toFailure(thrown);
      }
    });
  return Layer.syncContext(() => {
    storage.transactionSync(() => {
      if (storage.kv.get("parley") === undefined) storage.sql.exec(tables);
      storage.kv.put("parley", 1);
    });
    const { background } = sql;
    const { rows } = makeRows({
      write: transact,
      read: transact,
      background,
      emptyLog: Effect.void,
      rewriteIfDue: Effect.void,
    });
    return storeOf({
      ...rows,
      feedback: (...query) => atOnce(rows.feedback(...query)),
      records: (...query) => atOnce(rows.records(...query)),
    });
  });
};

/** Reads all at once and into memory, because the storage has no snapshots for later steps. */
const atOnce = <A, E>(stream: Stream.Stream<A, E>): Stream.Stream<A, E> =>
  Stream.unwrap(
    Effect.contextWith((context: Context.Context<never>) =>
      Effect.map(runInOneStep(Stream.runCollect(stream), context), Stream.fromIterable),
    ),
  );

/** SQLite's blobs are `ArrayBuffer`s here. */
const toRow = (row: Record<string, unknown>) =>
  Object.fromEntries(
    Object.entries(row).map(([name, value]) => [
      name,
      value instanceof ArrayBuffer ? new Uint8Array(value) : value,
    ]),
  );
