/**
 * The file, its tables, and the transactions and statements that the ports use.
 */
import { fold, StorageUnavailable } from "@parley/core/ports";
import { Clock, Effect, Schedule } from "effect";
import type { DatabaseSync, SQLInputValue } from "node:sqlite";

/** Values in the header of each file: "Parl" in ASCII, and the version of the tables. */
const header = { application_id: 0x5061726c, user_version: 2 };

const tables = `
  CREATE TABLE sequences (kind TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT;
  INSERT INTO sequences VALUES ('chat', 0), ('entry', 0);

  CREATE TABLE chatbots (
    id INTEGER PRIMARY KEY AUTOINCREMENT, workspaceName TEXT NOT NULL, name TEXT NOT NULL,
    description TEXT NOT NULL, settings TEXT NOT NULL, UNIQUE (workspaceName, name)
  ) STRICT;
  CREATE TABLE keys (
    id TEXT PRIMARY KEY, chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    hash BLOB NOT NULL, name TEXT, scopes TEXT NOT NULL, expiresAt INTEGER, bounds TEXT NOT NULL, createdAt INTEGER NOT NULL,
    revokedAt INTEGER, lastUsedAt INTEGER
  ) STRICT;
  CREATE TABLE audit (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, chatbot INTEGER NOT NULL,
    action TEXT NOT NULL, detail TEXT NOT NULL
  ) STRICT;

  CREATE TABLE chats (
    chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    id INTEGER NOT NULL, name TEXT, userRef TEXT,
    createTime INTEGER NOT NULL, turnEnded INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (chatbot, id)
  ) STRICT;
  -- When a chatbot's newest chat was created, even if that chat has been erased.
  CREATE TABLE newest (
    chatbot INTEGER PRIMARY KEY REFERENCES chatbots ON DELETE CASCADE, time INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX chatsOfUser ON chats (chatbot, userRef, id);
  CREATE TABLE entries (
    chatbot INTEGER NOT NULL, chatId INTEGER NOT NULL, id INTEGER NOT NULL,
    question TEXT NOT NULL, answer TEXT NOT NULL, moderation TEXT NOT NULL,
    flagged INTEGER NOT NULL, createTime INTEGER NOT NULL, usage TEXT, apiKeyId TEXT,
    PRIMARY KEY (chatbot, id),
    FOREIGN KEY (chatbot, chatId) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  CREATE INDEX entriesOfChat ON entries (chatbot, chatId, id);

  -- The tokens that an API key's asks cost on a UTC day.
  CREATE TABLE spending (
    chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE, apiKeyId TEXT NOT NULL,
    day INTEGER NOT NULL, tokens INTEGER NOT NULL, PRIMARY KEY (chatbot, apiKeyId, day)
  ) STRICT;

  -- Turns in progress, and turns whose lease has ended without another turn taking over.
  CREATE TABLE turns (
    id TEXT PRIMARY KEY, chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    chat INTEGER, idempotencyKey TEXT, fingerprint TEXT,
    heldUntil INTEGER NOT NULL, UNIQUE (chatbot, chat), UNIQUE (chatbot, idempotencyKey),
    FOREIGN KEY (chatbot, chat) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  -- The instances that wait for a turn, chat by chat; ids are in order of arrival.
  CREATE TABLE queues (
    id INTEGER PRIMARY KEY, chatbot INTEGER NOT NULL, chat INTEGER NOT NULL,
    instance TEXT NOT NULL, UNIQUE (chatbot, chat, instance),
    FOREIGN KEY (chatbot, chat) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  -- The result of a request with an idempotency key: a chat, or an entry and its turn.
  CREATE TABLE results (
    chatbot INTEGER NOT NULL, idempotencyKey TEXT NOT NULL, fingerprint TEXT NOT NULL,
    keepUntil INTEGER NOT NULL, chat INTEGER NOT NULL, entry INTEGER, turn TEXT,
    PRIMARY KEY (chatbot, idempotencyKey),
    FOREIGN KEY (chatbot, chat) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  CREATE INDEX resultsOfChat ON results (chatbot, chat);
  CREATE INDEX resultsUntil ON results (keepUntil);
`;

/** Values for the `:names` in a statement; values that the statement does not name are ignored. */
export type Values = Record<string, SQLInputValue>;

const busy = 5;
/** The result codes for a mistake in a statement: ERROR, CONSTRAINT, MISMATCH, MISUSE and RANGE. */
const mistakes: ReadonlyArray<number> = [1, 19, 20, 21, 25];

/** Returns SQLite's primary result code from a `node:sqlite` error; `undefined` for any other error. */
const codeOf = (cause: unknown): number | undefined =>
  cause instanceof Error && "errcode" in cause ? Number(cause.errcode) & 0xff : undefined;

/** Fails with `StorageUnavailable` if the database is closed or SQLite cannot use it; any other error is a defect. */
const failOrDie = (cause: unknown): Effect.Effect<never, StorageUnavailable> => {
  const code = codeOf(cause);
  const isClosed = (cause as { code?: unknown } | null)?.code === "ERR_INVALID_STATE";
  return isClosed || (code !== undefined && !mistakes.includes(code))
    ? Effect.fail(new StorageUnavailable({ cause }))
    : Effect.die(cause);
};

const openFile = (file: string): DatabaseSync => {
  // Node 20 lacks the module, and an import error would not say which version has it.
  const sqlite = process.getBuiltinModule("node:sqlite") as
    | typeof import("node:sqlite")
    | undefined;
  if (sqlite === undefined) {
    throw new Error(`@parley/store-sqlite needs Node 22.13 or later; this is ${process.version}`);
  }
  // Given an empty name, SQLite would create a temporary file and delete it on closing.
  if (file === "") throw new Error("the file name is empty");
  const db = new sqlite.DatabaseSync(file);
  try {
    db.function("fold", (text) => (typeof text === "string" ? fold(text) : null));
    db.exec(`
      -- Deleted rows are overwritten with zeros, but not the places from which SQLite has moved rows.
      PRAGMA secure_delete = ON;
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
    // Later statements wait up to five seconds for other processes.
    db.exec("PRAGMA busy_timeout = 5000");
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
      // On its own, SQLite would not wait for other processes that open a new file at the same time.
      Effect.retry({
        while: (error) => codeOf(error) === busy,
        schedule: Schedule.spaced("20 millis"),
        times: 250,
      }),
      Effect.mapError(({ message }) => {
        const cause = new Error(`Cannot open the SQLite file "${file}": ${message}`);
        return new StorageUnavailable({ cause });
      }),
    ),
    (db) => Effect.sync(() => db.close()),
  ).pipe(Effect.map(make));

const make = (db: DatabaseSync) => {
  /**
   * Runs `body` in a transaction, and passes it the time. If `body` returns an error, the transaction is rolled back
   * and the effect fails with that error. `body` must not wait for anything: all fibers share the connection.
   */
  const transaction =
    (begin: string) =>
    <A>(body: (now: number) => A) =>
      Effect.flatMap(
        Clock.currentTimeMillis,
        (now): Effect.Effect<Exclude<A, Error>, Extract<A, Error> | StorageUnavailable> => {
          try {
            db.exec(begin);
            const result = body(now);
            db.exec(result instanceof Error ? "ROLLBACK" : "COMMIT");
            return result instanceof Error
              ? Effect.fail(result as Extract<A, Error>)
              : Effect.succeed(result as Exclude<A, Error>);
          } catch (cause) {
            try {
              db.exec("ROLLBACK");
            } catch {
              // No transaction had begun, or SQLite had already rolled it back.
            }
            return failOrDie(cause);
          }
        },
      );
  /** Picks the values that the statement names: Node rejects any others. */
  const bind = (sql: string, values: Values): Values =>
    Object.fromEntries([...sql.matchAll(/:(\w+)/g)].map(([, name]) => [name!, values[name!]!]));
  const exec = (sql: string) =>
    Effect.try({ try: () => db.exec(sql), catch: (cause) => cause }).pipe(Effect.catch(failOrDie));
  return {
    /**
     * Rewrites the file without the copies of erased text that SQLite left when it moved rows. If another process is
     * writing for longer than the busy timeout, the next call removes them: the erasure itself is already stored.
     */
    rewriteFile: exec("VACUUM").pipe(
      Effect.catchIf(
        ({ cause }) => codeOf(cause) === busy,
        () => Effect.void,
      ),
    ),
    /** Empties the write-ahead log, which would otherwise keep erased text until later writes overwrite it. */
    emptyLog: exec("PRAGMA wal_checkpoint(TRUNCATE)"),
    read: transaction("BEGIN"),
    write: transaction("BEGIN IMMEDIATE"),
    get: <Row>(sql: string, values: Values) =>
      db.prepare(sql).get(bind(sql, values)) as Row | undefined,
    all: <Row>(sql: string, values: Values = {}) =>
      db.prepare(sql).all(bind(sql, values)) as Array<unknown> as Array<Row>,
    /** Returns how many rows the statement changed. */
    run: (sql: string, values: Values) => Number(db.prepare(sql).run(bind(sql, values)).changes),
  };
};

export type Database = ReturnType<typeof make>;
