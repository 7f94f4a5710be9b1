/**
 * The tables, and their rows. Times are in milliseconds since the Unix epoch. What no statement looks for is kept as JSON.
 */
import type { Chat, Entry, StorageUnavailable } from "@parley/core/ports";
import type { Effect } from "effect";

export const tables = `
  CREATE TABLE sequences (kind TEXT PRIMARY KEY, last INTEGER NOT NULL) STRICT;
  INSERT INTO sequences VALUES ('chat', 0), ('entry', 0);

  CREATE TABLE chatbots (
    id INTEGER PRIMARY KEY AUTOINCREMENT, workspaceName TEXT NOT NULL, name TEXT NOT NULL,
    description TEXT NOT NULL, settings TEXT NOT NULL,
    -- The number of chats, and when the newest one was created, even if it has been erased.
    chats INTEGER NOT NULL DEFAULT 0, latestChatTime INTEGER, UNIQUE (workspaceName, name)
  ) STRICT;
  CREATE TABLE apiKeys (
    id TEXT PRIMARY KEY, chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE,
    hash BLOB NOT NULL, record TEXT NOT NULL
  ) STRICT;
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
    chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE, id INTEGER NOT NULL,
    name TEXT, foldedName TEXT, userRef TEXT, createTime INTEGER NOT NULL, lastEntryTime INTEGER,
    entries INTEGER NOT NULL DEFAULT 0,
    turn TEXT NOT NULL DEFAULT '{"turn":null,"turnUntil":0,"waiting":[]}',
    PRIMARY KEY (chatbot, id)
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX chatsOfUser ON chats (chatbot, userRef, id);
  CREATE TABLE entries (
    chatbot INTEGER NOT NULL, id INTEGER NOT NULL, chatId INTEGER NOT NULL,
    question TEXT NOT NULL, answer TEXT NOT NULL, moderation TEXT NOT NULL,
    flagged INTEGER NOT NULL, createTime INTEGER NOT NULL, metadata TEXT, rating TEXT, comment TEXT,
    usage TEXT, apiKeyId TEXT, requestId TEXT,
    PRIMARY KEY (chatbot, id),
    FOREIGN KEY (chatbot, chatId) REFERENCES chats ON DELETE CASCADE
  ) STRICT;
  CREATE INDEX entriesOfChat ON entries (chatbot, chatId, id);

  CREATE TABLE idempotencyKeys (
    chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE, key TEXT NOT NULL,
    madeAt INTEGER NOT NULL, chatId INTEGER, record TEXT NOT NULL,
    PRIMARY KEY (chatbot, key),
    FOREIGN KEY (chatbot, chatId) REFERENCES chats ON DELETE CASCADE
  ) STRICT, WITHOUT ROWID;
  CREATE INDEX keysOfChat ON idempotencyKeys (chatbot, chatId);
  CREATE INDEX keysByAge ON idempotencyKeys (chatbot, madeAt);

  CREATE TABLE spending (
    chatbot INTEGER NOT NULL REFERENCES chatbots ON DELETE CASCADE, apiKeyId TEXT NOT NULL,
    day INTEGER NOT NULL, tokens INTEGER NOT NULL, PRIMARY KEY (chatbot, apiKeyId, day)
  ) STRICT, WITHOUT ROWID;
`;

export type Value = string | number | Uint8Array | null;

/** Runs statements, with a value for each `?`. */
export interface Sql {
  readonly all: <Row>(statement: string, values?: ReadonlyArray<Value>) => ReadonlyArray<Row>;
  /** Returns how many rows the statement changed. */
  readonly run: (statement: string, values: ReadonlyArray<Value>) => number;
  /** Turns what a statement has thrown into a failure or a defect. */
  readonly toFailure: (thrown: unknown) => Effect.Effect<never, StorageUnavailable>;
  /** Called after texts of users have been erased. */
  readonly onErasure: () => void;
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
