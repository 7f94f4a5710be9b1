/**
 * The file, its tables, and the transactions and statements that the ports are made of.
 */
import { fold, StorageUnavailable } from "@parley/core";
import { Clock, Effect } from "effect";
import { DatabaseSync, type SQLInputValue } from "node:sqlite";

const tables = `
  PRAGMA journal_mode = WAL;
  -- Deleted rows are overwritten with zeros.
  PRAGMA secure_delete = ON;

  CREATE TABLE IF NOT EXISTS sequences (kind TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT;
  INSERT OR IGNORE INTO sequences VALUES ('chat', 0), ('entry', 0);

  CREATE TABLE IF NOT EXISTS chatbots (
    id INTEGER PRIMARY KEY AUTOINCREMENT, workspaceName TEXT NOT NULL, name TEXT NOT NULL,
    description TEXT NOT NULL, settings TEXT NOT NULL, UNIQUE (workspaceName, name)
  ) STRICT;
  CREATE TABLE IF NOT EXISTS keys (
    id TEXT PRIMARY KEY, chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    hash BLOB NOT NULL, name TEXT, scopes TEXT NOT NULL, expiresAt INTEGER, bounds TEXT NOT NULL, createdAt INTEGER NOT NULL,
    revokedAt INTEGER, lastUsedAt INTEGER
  ) STRICT;
  CREATE TABLE IF NOT EXISTS audit (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, chatbot INTEGER NOT NULL,
    action TEXT NOT NULL, detail TEXT NOT NULL
  ) STRICT;

  CREATE TABLE IF NOT EXISTS chats (
    chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    id INTEGER NOT NULL, name TEXT, userRef TEXT,
    createTime INTEGER NOT NULL, turnEnded INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (chatbot, id)
  ) STRICT;
  -- When the newest chat of a chatbot was created, even if it was erased.
  CREATE TABLE IF NOT EXISTS newest (
    chatbot INTEGER PRIMARY KEY REFERENCES chatbots ON DELETE CASCADE, time INTEGER NOT NULL
  ) STRICT;
  CREATE INDEX IF NOT EXISTS chatsOfUser ON chats (chatbot, userRef, id);
  CREATE TABLE IF NOT EXISTS entries (
    chatbot INTEGER NOT NULL, chatId INTEGER NOT NULL, id INTEGER NOT NULL,
    question TEXT NOT NULL, answer TEXT NOT NULL, moderation TEXT NOT NULL,
    flagged INTEGER NOT NULL, createTime INTEGER NOT NULL, usage TEXT, keyId TEXT,
    PRIMARY KEY (chatbot, id),
    FOREIGN KEY (chatbot, chatId) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  CREATE INDEX IF NOT EXISTS entriesOfChat ON entries (chatbot, chatId, id);

  -- Turns that are held, or ran out and were not taken over.
  CREATE TABLE IF NOT EXISTS turns (
    id TEXT PRIMARY KEY, chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    chat INTEGER, idempotencyKey TEXT, fingerprint TEXT,
    heldUntil INTEGER NOT NULL, UNIQUE (chatbot, chat), UNIQUE (chatbot, idempotencyKey),
    FOREIGN KEY (chatbot, chat) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  -- The queues of the chats; ids are in order of arrival.
  CREATE TABLE IF NOT EXISTS waiting (
    id INTEGER PRIMARY KEY, chatbot INTEGER NOT NULL, chat INTEGER NOT NULL,
    instance TEXT NOT NULL, UNIQUE (chatbot, chat, instance),
    FOREIGN KEY (chatbot, chat) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  -- The result of a request with an idempotency key: a chat, or an entry and its turn.
  CREATE TABLE IF NOT EXISTS made (
    chatbot INTEGER NOT NULL, idempotencyKey TEXT NOT NULL, fingerprint TEXT NOT NULL,
    knownUntil INTEGER NOT NULL, chat INTEGER NOT NULL, entry INTEGER, turn TEXT,
    PRIMARY KEY (chatbot, idempotencyKey),
    FOREIGN KEY (chatbot, chat) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  CREATE INDEX IF NOT EXISTS madeOfChat ON made (chatbot, chat);
  CREATE INDEX IF NOT EXISTS madeUntil ON made (knownUntil);
`;

/** Values of `:names` in a statement; more than it names are fine. */
export type Values = Record<string, SQLInputValue>;

/** The result codes of a mistake in a statement: ERROR, CONSTRAINT, MISMATCH, MISUSE and RANGE. */
const mistakes: ReadonlyArray<number> = [1, 19, 20, 21, 25];

/** Fails with `StorageUnavailable` if SQLite cannot work with the file; any other error is a defect. */
const failOrDie = (cause: unknown): Effect.Effect<never, StorageUnavailable> => {
  const code = cause instanceof Error && "errcode" in cause ? Number(cause.errcode) & 0xff : 1;
  return mistakes.includes(code)
    ? Effect.die(cause)
    : Effect.fail(new StorageUnavailable({ cause }));
};

/** Opens a file, or `:memory:`, until the scope closes. */
export const openDatabase = (path: string) =>
  Effect.acquireRelease(
    Effect.catchDefect(
      Effect.sync(() => {
        const db = new DatabaseSync(path, { timeout: 5000, allowUnknownNamedParameters: true });
        db.function("fold", (text) => (typeof text === "string" ? fold(text) : null));
        db.exec(tables);
        return db;
      }),
      failOrDie,
    ),
    (db) => Effect.sync(() => db.close()),
  ).pipe(Effect.map(make));

const make = (db: DatabaseSync) => {
  /**
   * Runs `body`, which gets the time, in a transaction. An error that it returns rolls back and fails
   * the effect. It must not wait for anything: all fibers share the connection.
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
            if (db.isOpen && db.isTransaction) db.exec("ROLLBACK");
            return failOrDie(cause);
          }
        },
      );
  return {
    read: transaction("BEGIN"),
    write: transaction("BEGIN IMMEDIATE"),
    get: <Row>(sql: string, values: Values) => db.prepare(sql).get(values) as Row | undefined,
    all: <Row>(sql: string, values: Values = {}) =>
      db.prepare(sql).all(values) as Array<unknown> as Array<Row>,
    /** How many rows it changed. */
    run: (sql: string, values: Values) => Number(db.prepare(sql).run(values).changes),
  };
};

export type Database = ReturnType<typeof make>;
