/**
 * Runs slow statements in a thread of its own, on connections that can only read.
 */
import { Overloaded, StorageUnavailable } from "@parley/core/ports";
import { Effect, type Scope } from "effect";
import type { Worker } from "node:worker_threads";
import { type Background, type Query, toPositional } from "./SqliteTables.ts";

/**
 * The thread's program, which opens a connection for each snapshot. It is a string because a bundler would not find a
 * file.
 */
const program = `
process.emitWarning = () => {};
const { parentPort, workerData } = require("node:worker_threads");
const { DatabaseSync } = require("node:sqlite");
const snapshots = new Map();
const run = ({ action, queries, snapshot }) => {
  if (action === "rewrite") {
    const db = new DatabaseSync(workerData, { timeout: 5000 });
    try {
      db.exec("PRAGMA secure_delete = ON; VACUUM; PRAGMA wal_checkpoint(TRUNCATE)");
    } finally {
      db.close();
    }
  } else if (action === "end") {
    snapshots.get(snapshot)?.close();
    snapshots.delete(snapshot);
  } else {
    let db = snapshots.get(snapshot);
    if (db === undefined) {
      db = new DatabaseSync(workerData, { readOnly: true, timeout: 1000 });
      snapshots.set(snapshot, db);
      db.exec("BEGIN");
    }
    return queries.map(([text, values]) => db.prepare(text).all(...values));
  }
};
parentPort.on("message", (task) => {
  try {
    parentPort.postMessage({ task: task.id, rows: run(task) });
  } catch ({ errcode, message }) {
    parentPort.postMessage({ task: task.id, error: { errcode, message } });
  }
});`;

interface Reply {
  readonly task: number;
  readonly rows: ReadonlyArray<ReadonlyArray<Readonly<Record<string, unknown>>>>;
  readonly error?: { readonly errcode?: number; readonly message: string };
}

/** How many reads wait for the thread at most; a further one fails. The server runs as many slow lists at once. */
const maxReads = 16;

/** Starts the thread with the first statement. `toFailure` is for what a statement has thrown there. */
export const makeBackground = (
  file: string,
  toFailure: (thrown: unknown) => Effect.Effect<never, StorageUnavailable>,
): Effect.Effect<
  Background & { readonly rewrite: Effect.Effect<void, StorageUnavailable> },
  never,
  Scope.Scope
> =>
  Effect.gen(function* () {
    let worker: Worker | null = null;
    let tasks = 0;
    let reads = 0;
    const waiting = new Map<number, (reply: Reply) => void>();
    const failAll = (error: Error) => {
      worker = null;
      for (const [task, resume] of waiting) resume({ task, rows: [], error });
      waiting.clear();
    };
    const start = () => {
      const threads = process.getBuiltinModule("node:worker_threads");
      const started = new threads.Worker(program, { eval: true, workerData: file });
      started.unref();
      started.on("message", (reply: Reply) => {
        const resume = waiting.get(reply.task);
        waiting.delete(reply.task);
        if (waiting.size === 0) started.unref();
        resume?.(reply);
      });
      started.on("error", failAll);
      started.on("exit", () => failAll(new Error("the thread of the SQLite store has ended")));
      return started;
    };
    yield* Effect.addFinalizer(() => Effect.promise(async () => worker?.terminate()));

    const send = (message: object) =>
      Effect.callback<Reply>((resume) => {
        const id = ++tasks;
        waiting.set(id, (reply) => resume(Effect.succeed(reply)));
        worker ??= start();
        // A process must not end while it waits for a reply.
        worker.ref();
        worker.postMessage({ id, ...message });
      }).pipe(
        Effect.flatMap(({ error, rows }) =>
          error === undefined
            ? Effect.succeed(rows)
            : toFailure(Object.assign(new Error(error.message), error)),
        ),
      );
    const snapshot = Effect.gen(function* () {
      const id = ++tasks;
      yield* Effect.addFinalizer(() => Effect.ignore(send({ action: "end", snapshot: id })));
      return (queries: ReadonlyArray<Query>) =>
        send({
          action: "read",
          snapshot: id,
          queries: queries.map(([numbered, values]) => {
            const { places, text } = toPositional(numbered);
            return [text, places(values)];
          }),
        });
    });
    return {
      snapshot: Effect.map(
        snapshot,
        (read) => (query: Query) => Effect.map(read([query]), ([rows]) => rows!),
      ),
      read: (queries) =>
        Effect.suspend((): ReturnType<Background["read"]> => {
          if (reads >= maxReads)
            return Effect.fail(new Overloaded({ retryAfterSeconds: 1, reason: "slow_list" }));
          reads++;
          return Effect.ensuring(
            Effect.scoped(Effect.flatMap(snapshot, (read) => read(queries))),
            Effect.sync(() => reads--),
          );
        }),
      rewrite: Effect.asVoid(send({ action: "rewrite" })),
    };
  });
