/**
 * Opens the file, and runs transactions on it.
 */
import { runInOneStep, StorageUnavailable } from "@parley/core/ports";
import { Cause, Clock, Context, Effect, Exit, identity, Schedule } from "effect";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { makeTx, type SqliteTx, type Transactions } from "./SqliteRows.ts";
import { type Sql, tables, type Value } from "./SqliteTables.ts";

/** Values in the header of each file: "Parl" in ASCII, and the version of the tables. */
const header = { application_id: 0x5061726c, user_version: 3 };

/** How long a transaction waits for another process's, in milliseconds, and how often it tries. */
const busyFor = 5_000;
const busyInterval = 20;

/** How many bodies share a COMMIT at most. */
const maxBodies = 64;

const busy = 5;
/** The result codes for a mistake in a statement: ERROR, CONSTRAINT, MISMATCH, MISUSE and RANGE. */
const mistakes: ReadonlyArray<number> = [1, 19, 20, 21, 25];

/** Returns SQLite's primary result code from a `node:sqlite` error; `undefined` for any other error. */
const codeOf = (cause: unknown): number | undefined =>
  cause instanceof Error && "errcode" in cause ? Number(cause.errcode) & 0xff : undefined;

/** Fails with `StorageUnavailable` if the database is closed or SQLite cannot use it; any other error is a defect. */
const toFailure = (cause: unknown): Exit.Exit<never, StorageUnavailable> => {
  const code = codeOf(cause);
  const isClosed = (cause as { code?: unknown } | null)?.code === "ERR_INVALID_STATE";
  return isClosed || (code !== undefined && !mistakes.includes(code))
    ? Exit.fail(new StorageUnavailable({ cause }))
    : Exit.die(cause);
};

const openFile = (file: string): DatabaseSync => {
  // Node 20 lacks the module, and an import error would not say which version has it.
  const sqlite = process.getBuiltinModule("node:sqlite") as
    | typeof import("node:sqlite")
    | undefined;
  if (sqlite === undefined) {
    throw new Error(`@parley/store-sqlite needs Node 22.13 or later; this is ${process.version}`);
  }
  const db = new sqlite.DatabaseSync(file);
  try {
    db.exec(`
      -- Deleted rows are overwritten with zeros, but not the places from which SQLite has moved rows.
      PRAGMA secure_delete = ON;
      PRAGMA synchronous = FULL;
      BEGIN IMMEDIATE`);
    const read = (pragma: string) => Object.values(db.prepare(`PRAGMA ${pragma}`).get()!)[0];
    const isNew = read("application_id") === 0 && read("user_version") === 0;
    if (isNew && db.prepare("SELECT 1 FROM sqlite_schema").get() === undefined) {
      db.exec(tables);
      for (const [name, value] of Object.entries(header)) db.exec(`PRAGMA ${name} = ${value}`);
    } else if (read("application_id") !== header.application_id) {
      throw new Error("it belongs to another application");
    } else if (read("user_version") !== header.user_version) {
      throw new Error("it was created by another version of @parley/store-sqlite");
    }
    db.exec("COMMIT");
    // Set after the checks, because it changes the file.
    db.exec("PRAGMA journal_mode = WAL");
    return db;
  } catch (cause) {
    db.close();
    throw cause;
  }
};

/** Opens a file, or `:memory:`, and closes it when the scope closes. */
export const openDatabase = (file: string) =>
  Effect.acquireRelease(
    Effect.try({ try: () => openFile(file), catch: (error) => error as Error }).pipe(
      Effect.retry({
        while: (error) => codeOf(error) === busy,
        schedule: Schedule.spaced(busyInterval),
        times: busyFor / busyInterval,
      }),
      Effect.mapError(({ message }) => {
        const cause = new Error(`Cannot open the SQLite file "${file}": ${message}`);
        return new StorageUnavailable({ cause });
      }),
    ),
    (db) => Effect.sync(() => db.close()),
  ).pipe(Effect.map(makeDatabase));

interface Prepared {
  readonly statement: StatementSync;
  /** Returns a value for each question mark. */
  readonly places: (values: ReadonlyArray<Value>) => ReadonlyArray<Value>;
}

/** Prepares a statement, without the numbers of its parameters: Node 22.13 cannot bind numbered ones. */
const prepareIn = (db: DatabaseSync, text: string): Prepared => {
  const indexes = Array.from(text.matchAll(/\?(\d)/g), ([, number]) => Number(number) - 1);
  return {
    statement: db.prepare(text.replaceAll(/\?\d/g, "?")),
    places: indexes.length === 0 ? identity : (values) => indexes.map((index) => values[index]!),
  };
};

/** A body that waits for its transaction. */
interface Job {
  /** Runs the body, and returns its exit. */
  readonly run: () => Exit.Exit<unknown, unknown>;
  readonly resume: (exit: Exit.Exit<any, any>) => void;
}

const makeDatabase = (db: DatabaseSync): Transactions => {
  /** Kept, because preparing a statement takes longer than running it. */
  const statements = new Map<string, Prepared>();
  /** Whether the body in progress has a savepoint. A body gets one before it first writes. */
  let hasSavepoint = true;
  /** Whether the transaction in progress has erased texts of users. */
  let hasErased = false;
  const prepare = (text: string) => {
    if (!hasSavepoint && !text.startsWith("SELECT")) {
      hasSavepoint = true;
      exec("SAVEPOINT body");
    }
    let statement = statements.get(text);
    if (statement === undefined) statements.set(text, (statement = prepareIn(db, text)));
    return statement;
  };
  const exec = (text: string) => void prepare(text).statement.run();
  const sql: Sql = {
    all: <Row>(text: string, values: ReadonlyArray<Value> = []) => {
      const { places, statement } = prepare(text);
      return statement.all(...places(values)) as Array<unknown> as Array<Row>;
    },
    run: (text, values) => {
      const { places, statement } = prepare(text);
      return Number(statement.run(...places(values)).changes);
    },
    toFailure,
    onErasure: () => {
      hasErased = true;
    },
  };

  const runBody = <A, E, R>(
    body: (tx: SqliteTx) => Effect.Effect<A, E, R>,
    context: Context.Context<R>,
  ): Exit.Exit<A, E> => {
    const now = Context.get(context as Context.Context<never>, Clock.Clock);
    return runInOneStep(body(makeTx(sql, now.currentTimeMillisUnsafe())), context);
  };

  const queue: Array<Job> = [];
  /** Since when another process has kept the queue waiting, on the clock of `performance.now`. */
  let busySince: number | null = null;

  /** Runs a job within the transaction. Throws if SQLite has rolled the whole transaction back. */
  const runJob = (job: Job) => {
    hasSavepoint = false;
    const exit = job.run();
    if (hasSavepoint && Exit.isFailure(exit))
      try {
        exec("ROLLBACK TO body");
      } catch {
        throw Cause.squash(exit.cause);
      }
    if (hasSavepoint) exec("RELEASE body");
    hasSavepoint = true;
    return { job, exit };
  };

  /**
   * Runs the waiting bodies in one transaction, because a COMMIT costs much more than a body. While another process
   * writes, tries again later: SQLite itself would block the event loop.
   */
  const runQueue = () => {
    const jobs = queue.slice(0, maxBodies);
    let results: ReadonlyArray<{ readonly job: Job; readonly exit: Exit.Exit<unknown, unknown> }>;
    try {
      exec("BEGIN IMMEDIATE");
      results = jobs.map(runJob);
      exec("COMMIT");
    } catch (cause) {
      hasSavepoint = true;
      rollBack();
      busySince ??= performance.now();
      if (codeOf(cause) === busy && performance.now() - busySince < busyFor && jobs.length > 0)
        return void setTimeout(runQueue, busyInterval);
      const exit = cause instanceof StorageUnavailable ? Exit.fail(cause) : toFailure(cause);
      results = jobs.map((job) => ({ job, exit }));
    }
    busySince = null;
    queue.splice(0, jobs.length);
    if (queue.length > 0) setImmediate(runQueue);
    if (hasErased) rewriteFile();
    for (const { exit, job } of results) job.resume(exit);
  };

  const rollBack = () => {
    try {
      exec("ROLLBACK");
    } catch {
      // No transaction had begun, or SQLite had already rolled it back.
    }
  };

  /**
   * Rewrites the file without the copies of erased text that SQLite left when it moved rows, and empties the write-ahead
   * log. If that fails, for example because another process writes, the next erasure does it.
   */
  const rewriteFile = () => {
    hasErased = false;
    try {
      db.exec("VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    } catch {
      // The erasure itself is already stored.
    }
  };

  return {
    /** Runs the body in a transaction, together with other bodies of the same turn of the event loop. */
    write: <A, E, R>(
      body: (tx: SqliteTx) => Effect.Effect<A, E, R>,
    ): Effect.Effect<A, E | StorageUnavailable, R> =>
      Effect.contextWith((context: Context.Context<R>) =>
        Effect.callback((resume) => {
          const job: Job = { run: () => runBody(body, context), resume };
          queue.push(job);
          if (queue.length === 1) setImmediate(runQueue);
          return Effect.sync(() => {
            const index = queue.indexOf(job);
            if (index >= 0) queue.splice(index, 1);
          });
        }),
      ),
    /** Runs a body that only reads, on one snapshot. */
    read: <A, E, R>(
      body: (tx: SqliteTx) => Effect.Effect<A, E, R>,
    ): Effect.Effect<A, E | StorageUnavailable, R> =>
      Effect.contextWith(
        (context: Context.Context<R>): Effect.Effect<A, E | StorageUnavailable> => {
          try {
            exec("BEGIN");
            const exit = runBody(body, context);
            exec("COMMIT");
            return exit;
          } catch (cause) {
            rollBack();
            return toFailure(cause);
          }
        },
      ),
  };
};
