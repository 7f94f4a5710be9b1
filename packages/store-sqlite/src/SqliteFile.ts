/**
 * Opens the file, and runs transactions on it.
 */
import {
  dayMillis,
  registerGauge,
  runInOneStep,
  StorageUnavailable,
  type StorageReason,
} from "@parley/core/ports";
import { Cause, Clock, Context, Effect, Exit, Schedule } from "effect";
import type { DatabaseSync, StatementSync } from "node:sqlite";
import { makeTx, type SqliteTx, type Transactions } from "./SqliteRows.ts";
import {
  applicationId,
  currentVersion,
  firstVersion,
  migrations,
  type Sql,
  toPositional,
  type Value,
} from "./SqliteTables.ts";
import { makeBackground } from "./SqliteWorker.ts";

/** How long a call waits for another process, in milliseconds, and how often it tries. */
const busyFor = 5_000;
const busyInterval = 2;

/** How many bodies share a COMMIT at most. */
const maxBodies = 64;
/** How many turns of the event loop a COMMIT waits for further bodies, from the second on only if some have come. */
const maxTurns = 4;

const busy = 5;
/** The reasons for the result codes PERM, BUSY, READONLY, FULL and AUTH. */
const storageReasons: Readonly<Record<number, StorageReason>> = {
  3: "refused",
  [busy]: "timeout",
  8: "read_only",
  13: "disk_full",
  23: "refused",
};
/** The result codes for a mistake in a statement: ERROR, CONSTRAINT, MISMATCH, MISUSE and RANGE. */
const mistakes: ReadonlyArray<number> = [1, 19, 20, 21, 25];

/** Returns SQLite's primary result code from a `node:sqlite` error; `undefined` for any other error. */
const codeOf = (cause: unknown): number | undefined =>
  cause instanceof Error && "errcode" in cause ? Number(cause.errcode) & 0xff : undefined;

/** Larger files are rewritten only by a command, in bytes. */
const rewriteLimit = 256 * 2 ** 20;

/** How far ids move ahead in a copy: further than the ids that the original may have given since. */
const idsAhead = 100_000;

/** The files that SQLite has open. */
const filesOf = (file: string) => [file, `${file}-wal`, `${file}-shm`];

const identityOf = (file: string): string | null => {
  const options = { bigint: true, throwIfNoEntry: false } as const;
  const stat = process.getBuiltinModule("node:fs").statSync(file, options);
  return stat === undefined ? null : `${stat.dev}:${stat.ino}`;
};

export const loadSqlite = () => {
  // Node 20 lacks the module, and an import error would not say which version has it.
  const sqlite = process.getBuiltinModule("node:sqlite") as
    | typeof import("node:sqlite")
    | undefined;
  if (sqlite !== undefined) return sqlite;
  throw new Error(`@parley/store-sqlite needs Node 22.13 or later; this is ${process.version}`);
};

export const pragma = (db: DatabaseSync, name: string) =>
  Object.values(db.prepare(`PRAGMA ${name}`).get()!)[0] as string | number;

/** Returns the version of the tables; 0 for an empty file. Throws unless this version can open the file. */
export const versionOf = (db: DatabaseSync): number => {
  const [application, version] = [pragma(db, "application_id"), Number(pragma(db, "user_version"))];
  const isEmpty = db.prepare("SELECT 1 FROM sqlite_schema").get() === undefined;
  if (application === 0 && version === 0 && isEmpty) return 0;
  if (application !== applicationId) throw new Error("it belongs to another application");
  if (version > currentVersion)
    throw new Error(
      `a later version of Parley has changed it (tables ${version}, this version has ${currentVersion}): use that version, or restore a backup`,
    );
  if (version < firstVersion) throw new Error("it is from before the first release");
  return version;
};

/** Makes the ids that this file gives higher than those of the file that it is a copy of. Returns whether it is one. */
const moveIds = (db: DatabaseSync, file: string): boolean => {
  const identity = identityOf(file)!;
  const { identity: before } = db.prepare("SELECT identity FROM file").get() as Record<
    "identity",
    string
  >;
  if (identity === before) return false;
  db.prepare("UPDATE file SET identity = ?").run(identity);
  if (before === "") return false;
  db.exec(`UPDATE sequences SET last = last + ${idsAhead}`);
  return true;
};

/** Whether the file is not one that uses a write-ahead log, as its header says. SQLite would apply any log to it. */
const isBackup = (file: string): boolean => {
  const fs = process.getBuiltinModule("node:fs");
  const header = Buffer.alloc(20);
  const descriptor = fs.openSync(file, "r");
  fs.readSync(descriptor, header);
  fs.closeSync(descriptor);
  return header[18] === 1;
};

const openFile = (file: string, migrates: boolean) => {
  const fs = process.getBuiltinModule("node:fs");
  if (!fs.existsSync(file)) {
    if (!migrates) throw new Error("it does not exist");
    if (fs.existsSync(`${file}-wal`))
      throw new Error(`it is missing, but ${file}-wal, which belongs to it, is not: restore both`);
    // SQLite gives its other files the same permissions.
    fs.closeSync(fs.openSync(file, "a", 0o600));
  } else if (fs.existsSync(`${file}-wal`) && isBackup(file)) {
    throw new Error(
      `${file}-wal belongs to another file: if this one is a restored backup, delete ${file}-wal and ${file}-shm`,
    );
  }
  const db = new (loadSqlite().DatabaseSync)(file);
  try {
    db.exec(`
      -- Deleted rows are overwritten with zeros, but not the places from which SQLite has moved rows.
      PRAGMA secure_delete = ON;
      PRAGMA synchronous = FULL;
      PRAGMA fullfsync = ON;
      BEGIN IMMEDIATE`);
    const version = versionOf(db);
    if (version !== currentVersion) {
      if (!migrates) throw new Error('its tables are out of date: run "parley migrate" first');
      for (const step of migrations.slice(version === 0 ? 0 : version - firstVersion + 1))
        db.exec(step);
      db.exec(`PRAGMA application_id = ${applicationId}; PRAGMA user_version = ${currentVersion}`);
    }
    const isCopy = moveIds(db, file);
    db.exec("COMMIT");
    // Set after the checks, because it changes the file.
    db.exec("PRAGMA journal_mode = WAL; SELECT 1 FROM file");
    return { db, isCopy };
  } catch (cause) {
    db.close();
    throw cause;
  }
};

/**
 * Opens a file, and closes it when the scope closes.
 *
 * @param migrates whether to create the file, or to bring its tables up to date, if necessary
 */
export const openDatabase = Effect.fnUntraced(function* (path: string, migrates = true) {
  const file = process.getBuiltinModule("node:path").resolve(path);
  const { db, isCopy } = yield* Effect.try({
    try: () => openFile(file, migrates),
    catch: (error) => error as Error,
  }).pipe(
    Effect.retry({
      while: (error) => codeOf(error) === busy,
      schedule: Schedule.spaced(busyInterval),
      times: busyFor / busyInterval,
    }),
    Effect.mapError(({ message }) => {
      const cause = new Error(`Cannot open the SQLite file "${file}": ${message}`);
      return new StorageUnavailable({ cause });
    }),
  );
  if (isCopy)
    yield* Effect.logWarning(
      `"${file}" is a copy or a restored backup: new ids start ${idsAhead} higher, so that no id is given again`,
    );
  return yield* makeDatabase(db, file);
});

/**
 * Returns the function that makes an object of what the statement returns for a row. Reading twenty entries takes 95 us,
 * and 172 us with the objects that Node makes; Node 22.13 makes no arrays.
 */
const makeToRow = (statement: StatementSync): ((values: unknown) => unknown) => {
  if (!("setReturnArrays" in statement)) return (row) => row;
  statement.setReturnArrays(true);
  const names = statement.columns().map(({ name }) => name);
  return (values) => {
    const row: Record<string, unknown> = {};
    for (let index = 0; index < names.length; index++)
      row[names[index]!] = (values as ReadonlyArray<unknown>)[index];
    return row;
  };
};

/** A body that waits for its transaction. */
interface Job {
  /** Runs the body, and returns its exit. */
  readonly run: () => Exit.Exit<unknown, unknown>;
  readonly resume: (exit: Exit.Exit<any, any>) => void;
}

const makeDatabase = Effect.fnUntraced(function* (db: DatabaseSync, file: string) {
  const unusable = " cannot be used: ";
  const services = yield* Effect.context<never>();
  const log = Effect.runForkWith(services);
  const identities = filesOf(file).map(identityOf);
  /** Why calls fail at present; `null` if they do not. */
  let problem: string | null = null;
  let isLost = false;
  let isClosed = false;

  const description = "1 if the database accepts writes, 0 if it refuses them";
  registerGauge(services, "parley.database.writable", description, {}, () =>
    problem === null ? 1 : 0,
  );

  const setProblem = (reason: string | null) => {
    const before = problem;
    problem = reason;
    if ((before === null) === (reason === null) || isClosed) return;
    if (reason === null) return void log(Effect.logInfo(`The SQLite file "${file}" works again`));
    log(Effect.logError(`Cannot use the SQLite file "${file}": ${reason}`));
    if (!isLost) probeLater();
  };
  /** Tries to write once a second until that succeeds. */
  const probeLater = () =>
    setTimeout(() => {
      if (problem === null || isLost || isClosed) return;
      enqueue({
        run: () => {
          // Large enough to fail on a full disk.
          run("UPDATE file SET probe = zeroblob(100000)", []);
          run("UPDATE file SET probe = NULL", []);
          return Exit.void;
        },
        resume: (exit) => (Exit.isSuccess(exit) ? setProblem(null) : void probeLater()),
      });
    }, 1_000).unref();

  /**
   * Fails with `StorageUnavailable` if the database is closed or SQLite cannot use it; any other error is a defect.
   */
  const toFailure = (cause: unknown): Exit.Exit<never, StorageUnavailable> => {
    const code = codeOf(cause);
    const isClosedError = (cause as { code?: unknown } | null)?.code === "ERR_INVALID_STATE";
    if (!isClosedError && (code === undefined || mistakes.includes(code))) return Exit.die(cause);
    const { message } = cause as Error;
    const reason =
      code === busy ? `another process has kept it locked for ${busyFor / 1000} seconds` : message;
    const error = new Error(`The SQLite file "${file}"${unusable}${reason}`);
    const details = { cause: Object.assign(error, { errcode: code }) };
    return Exit.fail(
      new StorageUnavailable({ ...details, reason: storageReasons[code ?? 0] ?? "down" }),
    );
  };
  const isBusy = ({ cause }: StorageUnavailable) => codeOf(cause) === busy;

  /** Records a failure, which calls after it will probably meet, too. */
  const recordFailure = (exit: Exit.Exit<unknown, unknown>) => {
    if (Exit.isSuccess(exit)) return;
    const error = Cause.squash(exit.cause);
    const reason =
      error instanceof StorageUnavailable ? error.message.split(unusable)[1] : undefined;
    if (reason !== undefined) setProblem(reason);
  };

  const lost = "it was removed or replaced while it was open; restart the server";
  const lostExit = Exit.fail(
    new StorageUnavailable({
      cause: new Error(`The SQLite file "${file}"${unusable}${lost}`),
    }),
  );
  /** A failure if the file is no longer where it was: then nobody would find what is written. */
  const checkFile = (): Exit.Exit<void, StorageUnavailable> => {
    if (!isLost && filesOf(file).some((name, index) => identityOf(name) !== identities[index])) {
      isLost = true;
      setProblem(null);
      setProblem(lost);
    }
    return isLost ? lostExit : Exit.void;
  };

  /** Kept, because preparing a statement takes longer than running it. */
  const statements = new Map<string, ReturnType<typeof prepareText>>();
  const prepareText = (numbered: string) => {
    const { places, text } = toPositional(numbered);
    const statement = db.prepare(text);
    return { statement, places, toRow: makeToRow(statement) };
  };
  /** Whether the body in progress has a savepoint. A body gets one before it first writes. */
  let hasSavepoint = true;
  /** Whether texts of users have been erased since the write-ahead log was last emptied. */
  let hasErased = false;
  const prepare = (text: string) => {
    if (!hasSavepoint && !text.startsWith("SELECT")) {
      hasSavepoint = true;
      exec("SAVEPOINT body");
    }
    let statement = statements.get(text);
    if (statement === undefined) statements.set(text, (statement = prepareText(text)));
    return statement;
  };
  const exec = (text: string) => void prepare(text).statement.run();
  const run = (text: string, values: ReadonlyArray<Value>) => {
    const { places, statement } = prepare(text);
    return Number(statement.run(...places(values)).changes);
  };
  const background = yield* makeBackground(file, toFailure);
  const sql: Sql = {
    all: <Row>(text: string, values: ReadonlyArray<Value> = []) => {
      const { places, statement, toRow } = prepare(text);
      return statement.all(...places(values)).map(toRow) as Array<Row>;
    },
    run,
    toFailure,
    onSnapshot: (body) => {
      exec("BEGIN");
      try {
        return body();
      } finally {
        exec("COMMIT");
      }
    },
    onErasure: () => {
      hasErased = true;
    },
    background,
  };
  let now = 0;
  const tx = makeTx(sql, () => now);

  const queue: Array<Job> = [];
  const enqueue = (job: Job) => {
    queue.push(job);
    if (queue.length === 1) gather(maxTurns, 0);
  };
  const gather = (turns: number, length: number) =>
    setImmediate(() => {
      const isGrowing = queue.length > length && queue.length < maxBodies;
      if (isGrowing && turns > 1) gather(turns - 1, queue.length);
      else runQueue();
    });
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
    return exit;
  };

  /**
   * Runs the waiting bodies in one transaction, because a COMMIT costs much more than a body. While another process
   * writes, tries again later: SQLite itself would block the event loop.
   */
  const runQueue = () => {
    const jobs = queue.slice(0, maxBodies);
    let exits: ReadonlyArray<Exit.Exit<unknown, unknown>>;
    try {
      exec("BEGIN IMMEDIATE");
      exits = jobs.map(runJob);
      exec("COMMIT");
      const check = checkFile();
      if (Exit.isFailure(check)) exits = jobs.map(() => check);
      exits.forEach(recordFailure);
      busySince = null;
    } catch (cause) {
      hasSavepoint = true;
      rollBack();
      // If another process keeps the file locked for longer, further calls fail at once until the probe succeeds.
      busySince ??= performance.now();
      if (codeOf(cause) === busy && performance.now() - busySince < busyFor && jobs.length > 0)
        return void setTimeout(runQueue, busyInterval);
      const exit = cause instanceof StorageUnavailable ? Exit.fail(cause) : toFailure(cause);
      recordFailure(exit);
      exits = jobs.map(() => exit);
    }
    queue.splice(0, jobs.length);
    if (queue.length > 0) setImmediate(runQueue);
    jobs.forEach(({ resume }, index) => resume(exits[index]!));
  };

  const rollBack = () => {
    try {
      exec("ROLLBACK");
    } catch {
      // No transaction had begun, or SQLite had already rolled it back.
    }
  };

  /** Empties the write-ahead log, which may contain erased text. A reader may prevent that for a moment. */
  const emptyLog = () => {
    if (!hasErased || isLost || isClosed) return;
    try {
      // Most of the work. The next checkpoint keeps other processes from writing: without this one,
      // asks beside erasures take 99 ms (p99), not 45.
      db.exec("PRAGMA wal_checkpoint(PASSIVE)");
      const result = db.prepare("PRAGMA wal_checkpoint(TRUNCATE)").get() as { busy: number };
      hasErased = result.busy !== 0;
    } catch {
      // The erasure itself is already stored.
    }
    if (hasErased) setTimeout(emptyLog, 1_000).unref();
  };

  yield* Effect.addFinalizer(() =>
    Effect.sync(() => {
      emptyLog();
      isClosed = true;
      // SQLite would delete the write-ahead log, which may belong to another file by now.
      if (!isLost) db.close();
    }),
  );

  /** When to say again that the file should be rewritten, on the clock of `performance.now`. */
  let nextReminder = 0;

  /** Runs the body in a transaction, together with other bodies of the same few turns of the event loop. */
  const write: Transactions["write"] = (body) =>
    Effect.contextWith((context: Context.Context<any>) =>
      Effect.callback((resume) => {
        // Before the body, because an ask would otherwise pay for an answer that cannot be stored.
        if (isLost) return resume(lostExit);
        const clock = Context.get(context, Clock.Clock);
        const job: Job = {
          run: () => {
            now = clock.currentTimeMillisUnsafe();
            return runInOneStep(body(tx), context);
          },
          resume,
        };
        enqueue(job);
        return Effect.sync(() => {
          const index = queue.indexOf(job);
          if (index >= 0) queue.splice(index, 1);
        });
      }),
    );
  const read: Transactions["read"] = <A, E, R>(body: (tx: SqliteTx) => Effect.Effect<A, E, R>) =>
    Effect.flatMap(
      Clock.currentTimeMillis,
      (millis): Effect.Effect<A, E | StorageUnavailable, R> => {
        if (isLost) return lostExit;
        now = millis;
        return body(tx);
      },
    ).pipe(
      Effect.retry({
        while: (error) => error instanceof StorageUnavailable && isBusy(error),
        schedule: Schedule.spaced(busyInterval),
        times: busyFor / busyInterval,
      }),
      Effect.tapError((error) => Effect.sync(() => recordFailure(Exit.fail(error)))),
    );

  const transactions: Transactions = {
    write,
    read,
    emptyLog: Effect.sync(emptyLog),
    background,
    rewriteIfDue: Effect.gen(function* () {
      if (!(yield* read((tx) => tx.isRewriteDue()))) return;
      const { size } = process.getBuiltinModule("node:fs").statSync(file);
      if (size < rewriteLimit) {
        yield* background.rewrite;
        return yield* write((tx) => tx.recordRewrite());
      }
      if (performance.now() < nextReminder) return;
      nextReminder = performance.now() + dayMillis;
      yield* Effect.logWarning(
        `The SQLite file "${file}" has ${Math.round(size / 2 ** 20)} MB, and contains copies of erased text: "parley compact" removes them`,
      );
    }),
  };
  return {
    ...transactions,
    /** Why calls fail at present; `null` if they do not. */
    readOnlyReason: Effect.sync(() => {
      checkFile();
      return problem;
    }),
  };
});
