/**
 * The tables, and their rows. Times are in milliseconds since the Unix epoch. What no statement looks for is kept as JSON.
 */
import type { Chat, Entry, Overloaded, StorageUnavailable } from "@parley/core/ports";
import type { Effect, Scope } from "effect";

export const tables = `
  CREATE TABLE sequences (kind TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT;
  INSERT INTO sequences VALUES ('chat', 0), ('entry', 0);

  -- The file that this database was last opened in (its device and inode, or 'copy' in a backup), when texts were last
  -- erased, and when the file was last rewritten. Writing \`probe\` shows whether writes succeed.
  CREATE TABLE file (
    identity TEXT NOT NULL, erasedAt INTEGER NOT NULL, rewrittenAt INTEGER NOT NULL, probe BLOB
  ) STRICT;
  INSERT INTO file VALUES ('', 0, 0, NULL);

  -- No foreign keys: they would delete all rows of a chatbot in one transaction, during which nothing else runs.
  CREATE TABLE chatbots (
    id INTEGER PRIMARY KEY AUTOINCREMENT, workspaceName TEXT NOT NULL, name TEXT NOT NULL,
    description TEXT NOT NULL, settings TEXT NOT NULL,
    -- The number of chats, and when the newest one was created, even if it has been erased.
    chats INTEGER NOT NULL DEFAULT 0, latestChatTime INTEGER, UNIQUE (workspaceName, name)
  ) STRICT;
  CREATE TABLE apiKeys (
    id TEXT PRIMARY KEY, chatbot INTEGER NOT NULL, hash BLOB NOT NULL, record TEXT NOT NULL
  ) STRICT;
  CREATE INDEX keysOfChatbot ON apiKeys (chatbot);
  CREATE TABLE audit (
    id INTEGER PRIMARY KEY, time INTEGER NOT NULL, actor TEXT NOT NULL, chatbot INTEGER NOT NULL,
    action TEXT NOT NULL, detail TEXT NOT NULL
  ) STRICT;

  -- The chats that the visitors of a key have erased on a UTC day.
  CREATE TABLE visitorErasures (
    chatbot INTEGER NOT NULL, apiKeyId TEXT NOT NULL, day INTEGER NOT NULL, time INTEGER NOT NULL,
    chats INTEGER NOT NULL, PRIMARY KEY (chatbot, apiKeyId, day)
  ) STRICT, WITHOUT ROWID;

  CREATE TABLE chats (
    chatbot INTEGER NOT NULL, id INTEGER NOT NULL,
    name TEXT, foldedName TEXT, userRef TEXT, createTime INTEGER NOT NULL, lastEntryTime INTEGER,
    entries INTEGER NOT NULL DEFAULT 0,
    turn TEXT NOT NULL DEFAULT '{"turn":null,"turnUntil":0,"waiting":[]}',
    PRIMARY KEY (chatbot, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX chatsOfUser ON chats (chatbot, userRef, id);
  CREATE INDEX chatsByName ON chats (chatbot, name IS NULL, name, id);
  CREATE TABLE entries (
    chatbot INTEGER NOT NULL, id INTEGER NOT NULL, chatId INTEGER NOT NULL,
    question TEXT NOT NULL, answer TEXT NOT NULL, moderation TEXT NOT NULL,
    flagged INTEGER NOT NULL, createTime INTEGER NOT NULL, metadata TEXT, rating TEXT, comment TEXT,
    usage TEXT, apiKeyId TEXT, requestId TEXT,
    PRIMARY KEY (chatbot, id)
  ) STRICT;
  CREATE INDEX entriesOfChat ON entries (chatbot, chatId, id);
  -- Chats that have been erased, but whose entries have not; \`chatId\` is NULL for all rows of a chatbot.
  CREATE TABLE remains (chatbot INTEGER NOT NULL, chatId INTEGER) STRICT;

  CREATE TABLE idempotencyKeys (
    chatbot INTEGER NOT NULL, key TEXT NOT NULL, madeAt INTEGER NOT NULL, chatId INTEGER,
    record TEXT NOT NULL, PRIMARY KEY (chatbot, key)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX keysOfChat ON idempotencyKeys (chatbot, chatId);
  CREATE INDEX keysByAge ON idempotencyKeys (chatbot, madeAt);

  CREATE TABLE spending (
    chatbot INTEGER NOT NULL, apiKeyId TEXT NOT NULL, day INTEGER NOT NULL, tokens INTEGER NOT NULL,
    PRIMARY KEY (chatbot, apiKeyId, day)
  ) STRICT, WITHOUT ROWID;
  -- What erased answers cost.
  CREATE TABLE erasedUsage (
    chatbot INTEGER NOT NULL, day TEXT NOT NULL, apiKeyId TEXT, provider TEXT, model TEXT,
    answers INTEGER NOT NULL, attempts INTEGER NOT NULL, promptTokens INTEGER NOT NULL,
    completionTokens INTEGER NOT NULL
  ) STRICT;
  CREATE UNIQUE INDEX erasedUsageByDay ON erasedUsage
    (chatbot, day, ifnull(apiKeyId, ''), ifnull(provider, ''), ifnull(model, ''));
`;

/** "Parl" in ASCII, in the header of each file. */
export const applicationId = 0x5061726c;
/** The first version of the tables that later versions open. */
export const firstVersion = 4;
/** What leads from each version to the next. Servers of the version before must work with the result. */
export const migrations: ReadonlyArray<string> = [tables];
/** The version of the tables, in the header of the file (`user_version`). */
export const currentVersion = firstVersion + migrations.length - 1;

export type Value = string | number | Uint8Array | null;

/** Runs statements, with a value for each `?`. */
export interface Sql {
  readonly all: <Row>(statement: string, values?: ReadonlyArray<Value>) => ReadonlyArray<Row>;
  /** Returns how many rows the statement changed. */
  readonly run: (statement: string, values: ReadonlyArray<Value>) => number;
  /** Turns what a statement has thrown into a failure or a defect. */
  readonly toFailure: (thrown: unknown) => Effect.Effect<never, StorageUnavailable>;
  /** Runs statements that only read, on one snapshot. */
  readonly onSnapshot: <A>(body: () => A) => A;
  /** Called after texts of users have been erased. */
  readonly onErasure: () => void;
  readonly background: Background;
}

/** A statement as text and values. */
export type Query = readonly [text: string, values: ReadonlyArray<Value>];
type Rows = ReadonlyArray<Readonly<Record<string, unknown>>>;

/**
 * Returns the statement without the numbers of its parameters, and a function that returns a value for each question
 * mark: Node 22.13 cannot bind numbered ones.
 */
export const toPositional = (text: string) => {
  const indexes = Array.from(text.matchAll(/\?(\d)/g), ([, number]) => Number(number) - 1);
  return {
    text: text.replaceAll(/\?\d/g, "?"),
    places: (values: ReadonlyArray<Value>) =>
      indexes.length === 0 ? values : indexes.map((index) => values[index]!),
  };
};

/** Runs slow statements where they do not hold up other calls. */
export interface Background {
  /** Returns the rows of each query, all from one snapshot. */
  readonly read: (
    queries: ReadonlyArray<Query>,
  ) => Effect.Effect<ReadonlyArray<Rows>, StorageUnavailable | Overloaded>;
  /** A function that reads from one snapshot until the scope closes. */
  readonly snapshot: Effect.Effect<
    (query: Query) => Effect.Effect<Rows, StorageUnavailable>,
    StorageUnavailable,
    Scope.Scope
  >;
}

type WithMillis<Row> = Omit<Row, "createTime"> & { readonly createTime: number };

export const chatColumns = "id, name, userRef, createTime";
/** The columns of a chat; those of its activity may be absent. */
export type ChatColumns = WithMillis<Omit<Chat, "lastEntryTime">> & {
  readonly lastActivity?: number;
};
export const toChat = ({
  createTime,
  entries,
  id,
  lastActivity,
  name,
  userRef,
}: ChatColumns): Chat => ({
  id,
  name,
  userRef,
  createTime: new Date(createTime),
  ...(lastActivity !== undefined && { lastEntryTime: new Date(lastActivity), entries: entries! }),
});

export const entryColumns = "id, chatId, question, answer, moderation, flagged, createTime";
/** The columns of what a reader may ask for in addition. */
export const includedColumns = { metadata: "metadata", feedback: "rating, comment" } as const;
export const allEntryColumns = [entryColumns, ...Object.values(includedColumns)].join();
/** The columns of an entry; those of what was not asked for are absent. */
export type EntryColumns = WithMillis<Omit<Entry, "flagged" | "metadata">> & {
  readonly flagged: number;
  readonly metadata?: string | null;
};
export const toEntry = ({ createTime, flagged, metadata, ...row }: EntryColumns): Entry => ({
  ...row,
  flagged: flagged === 1,
  createTime: new Date(createTime),
  ...(metadata !== undefined && { metadata: metadata === null ? null : JSON.parse(metadata) }),
});
