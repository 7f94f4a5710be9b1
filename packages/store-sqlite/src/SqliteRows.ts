/**
 * `@parley/store-sqlite/rows`: the verbs of a store as statements. They need nothing but `Sql`, so they run wherever
 * SQLite does.
 */
import {
  type ArchiveRecord,
  type AuditRecord,
  type Chat,
  type Chatbot,
  type ChatbotId,
  type ChatId,
  type DatedErasure,
  defaultSettings,
  type EntryRow,
  type FeedbackKind,
  fold,
  ImportRefused,
  type Lists,
  type RegisteredKey,
  type Rows,
  type StorageUnavailable,
  type Tx,
  type UsageSum,
  type VisitorErasures,
} from "@parley/core/ports";
import { Clock, Effect, Stream } from "effect";
import { pageOfChats, pageOfEntries } from "./SqliteLists.ts";
import {
  chatColumns,
  type ChatColumns,
  allEntryColumns,
  entryColumns,
  type EntryColumns,
  type Sql,
  toChat,
  toEntry,
  type Value,
} from "./SqliteTables.ts";

export { type Sql, tables } from "./SqliteTables.ts";

type ChatbotColumns = Omit<Chatbot, "settings"> & { readonly settings: string };
const chatbotColumns = "id, workspaceName, name, description, settings";
const toChatbot = ({ settings, ...row }: ChatbotColumns): Chatbot => ({
  ...row,
  settings: { ...defaultSettings, ...JSON.parse(settings) },
});

interface KeyColumns {
  readonly chatbot: ChatbotId;
  readonly hash: Uint8Array;
  /** The other fields, as JSON. */
  readonly record: string;
}
const toKey = ({ hash, record }: KeyColumns): RegisteredKey => ({
  hash,
  ...JSON.parse(record, (name, value) =>
    name.endsWith("At") && value !== null ? new Date(value) : value,
  ),
});
const toRecord = ({ hash: _, ...record }: RegisteredKey): string => JSON.stringify(record);

/**
 * The conditions under which an erasure erases a chat, and a visitor's key that has no chat; `?2` is the value. Such a
 * key contains the visitor's `userRef`.
 */
const conditionsOf = (which: DatedErasure): { chat: string; key: string; value: Value } => {
  switch (which._tag) {
    case "Chat":
      return { chat: "id = ?2", key: "FALSE AND ?2", value: which.id };
    case "UserRef": {
      const key = "substr(key, instr(key, char(10)) + 1) = ?2";
      return { chat: "userRef = ?2", key, value: which.userRef };
    }
    case "IdleSince": {
      const chat = "coalesce(lastEntryTime, createTime) < ?2";
      const key = "coalesce(record ->> 'turnUntil', 0) < ?2";
      return { chat, key, value: which.limit.getTime() };
    }
    case "All":
      return { chat: "?2", key: "?2", value: 1 };
  }
};

export const makeTx = (sql: Sql, now: number) => {
  const { all, onErasure, run, toFailure } = sql;
  const first = <Row>(statement: string, values: ReadonlyArray<Value>) =>
    all<Row>(statement, values)[0];
  const insert = (table: string, row: Readonly<Record<string, Value>>, onConflict = "") => {
    const columns = Object.keys(row);
    const places = columns.map(() => "?").join();
    const statement = `INSERT INTO ${table} (${columns.join()}) VALUES (${places}) ${onConflict}`;
    run(statement, Object.values(row));
  };
  const verb =
    <Values extends ReadonlyArray<unknown>, A>(body: (...values: Values) => A) =>
    (...values: Values): Effect.Effect<A, StorageUnavailable> =>
      Effect.suspend(() => {
        try {
          return Effect.succeed(body(...values));
        } catch (thrown) {
          return toFailure(thrown);
        }
      });

  const findChatbot = (id: ChatbotId) => {
    const row = first<ChatbotColumns>(`SELECT ${chatbotColumns} FROM chatbots WHERE id = ?`, [id]);
    return row === undefined ? null : toChatbot(row);
  };
  const chatbotNamed = (workspaceName: string, name: string) => {
    const statement = "SELECT id FROM chatbots WHERE workspaceName = ? AND name = ?";
    return first<{ id: ChatbotId }>(statement, [workspaceName, name])?.id ?? null;
  };
  const findKey = (condition: string, values: ReadonlyArray<Value>) =>
    first<KeyColumns>(`SELECT * FROM apiKeys WHERE ${condition}`, values);
  const insertChat = (chatbot: ChatbotId, { createTime, id, name, userRef }: Chat) => {
    const time = createTime.getTime();
    const foldedName = name && fold(name);
    insert("chats", { chatbot, id, name, foldedName, userRef, createTime: time });
    const count = "chats = chats + 1, latestChatTime = max(coalesce(latestChatTime, ?2), ?2)";
    run(`UPDATE chatbots SET ${count} WHERE id = ?1`, [chatbot, time]);
  };
  const toJson = (value: object | null | undefined) => (value ? JSON.stringify(value) : null);
  const insertEntry = (chatbot: ChatbotId, { entry, usage, ...more }: EntryRow) => {
    const createTime = entry.createTime.getTime();
    const flagged = entry.flagged ? 1 : 0;
    const values = { metadata: toJson(entry.metadata), usage: toJson(usage), ...more };
    insert("entries", {
      chatbot,
      rating: null,
      comment: null,
      ...entry,
      flagged,
      createTime,
      ...values,
    });
    const touch = "lastEntryTime = ?3, entries = entries + 1";
    run(`UPDATE chats SET ${touch} WHERE chatbot = ?1 AND id = ?2`, [
      chatbot,
      entry.chatId,
      createTime,
    ]);
  };
  const isOwn = "chatbot = ?1 AND id = ?2 AND (?3 IS NULL OR userRef = ?3)";
  const ownChat = (chatbot: ChatbotId, id: ChatId, visitor: string | null) => {
    const row = first<ChatColumns>(`SELECT ${chatColumns} FROM chats WHERE ${isOwn}`, [
      chatbot,
      id,
      visitor,
    ]);
    return row === undefined ? null : toChat(row);
  };
  const findEntry = (chatbot: ChatbotId, chat: ChatId, id: number) => {
    const condition = "chatbot = ? AND chatId = ? AND id = ?";
    const statement = `SELECT ${allEntryColumns} FROM entries WHERE ${condition}`;
    const row = first<EntryColumns>(statement, [chatbot, chat, id]);
    return row === undefined ? null : toEntry(row);
  };
  const insertRecords = verb((chatbot: ChatbotId, records: ReadonlyArray<ArchiveRecord>) => {
    const sameId = "SELECT 1 FROM entries WHERE chatbot = ? AND id = ?";
    for (const record of records)
      if (record._tag === "Chat") insertChat(chatbot, record.chat);
      else if (first(sameId, [chatbot, record.entry.id]) !== undefined) return false;
      else
        insertEntry(chatbot, {
          entry: record.entry,
          usage: record.usage,
          apiKeyId: null,
          requestId: null,
        });
    return true;
  });

  const tx: Tx & Lists = {
    now,
    nextId: verb((kind) => {
      const statement = "UPDATE sequences SET last = last + 1 WHERE kind = ? RETURNING last";
      return first<{ last: number }>(statement, [kind])!.last;
    }),

    chatbots: verb((id) => {
      const condition = "?1 IS NULL OR id = ?1 ORDER BY id";
      const rows = all<ChatbotColumns>(
        `SELECT ${chatbotColumns} FROM chatbots WHERE ${condition}`,
        [id],
      );
      const ofChatbot = "SELECT * FROM apiKeys WHERE chatbot = ? ORDER BY rowid";
      return rows.map((row) => ({
        chatbot: toChatbot(row),
        keys: all<KeyColumns>(ofChatbot, [row.id]).map(toKey),
      }));
    }),
    chatbot: verb(findChatbot),
    chatbotNamed: verb(chatbotNamed),
    insertChatbot: verb((chatbot) => {
      insert("chatbots", { ...chatbot, settings: JSON.stringify(chatbot.settings) });
      return chatbotNamed(chatbot.workspaceName, chatbot.name)!;
    }),
    setChatbot: verb((chatbot) => {
      const fields = "workspaceName = ?2, name = ?3, description = ?4, settings = ?5";
      const { description, id, name, workspaceName } = chatbot;
      const settings = JSON.stringify(chatbot.settings);
      run(`UPDATE chatbots SET ${fields} WHERE id = ?1`, [
        id,
        workspaceName,
        name,
        description,
        settings,
      ]);
    }),
    // Foreign keys delete all rows that refer to the chatbot.
    deleteChatbot: verb((id) => {
      run("DELETE FROM chatbots WHERE id = ?", [id]);
      onErasure();
    }),
    grant: verb((keyId) => {
      const row = findKey("id = ? AND record ->> 'revokedAt' IS NULL", [keyId]);
      return row === undefined
        ? null
        : { key: toKey(row), chatbot: findChatbot(row.chatbot)!, now };
    }),
    takenKeyIds: verb((ids) => ids.filter((id) => findKey("id = ?", [id]) !== undefined)),
    apiKey: verb((chatbot, id) => {
      const row = findKey("chatbot = ? AND id = ?", [chatbot, id]);
      return row === undefined ? null : toKey(row);
    }),
    insertApiKeys: verb((chatbot, keys) => {
      for (const key of keys)
        insert("apiKeys", { id: key.id, chatbot, hash: key.hash, record: toRecord(key) });
    }),
    setApiKey: verb((key) => {
      run("UPDATE apiKeys SET record = ?2 WHERE id = ?1", [key.id, toRecord(key)]);
    }),
    audit: verb((entries) => {
      for (const entry of entries) insert("audit", { time: now, ...entry });
    }),
    auditLog: verb((limit) =>
      all<Omit<AuditRecord, "time"> & { readonly time: number }>(
        "SELECT time, actor, chatbot, action, detail FROM audit ORDER BY id DESC LIMIT ?",
        [limit],
      ).map((row) => ({ ...row, time: new Date(row.time) })),
    ),

    ownChat: verb(ownChat),
    renameChat: verb((chatbot, id, name, visitor) => {
      const names = "name = ?4, foldedName = ?5";
      const values = [chatbot, id, visitor, name, name && fold(name)];
      run(`UPDATE chats SET ${names} WHERE ${isOwn}`, values);
      return ownChat(chatbot, id, visitor);
    }),
    rateEntry: verb((chatbot, chat, id, feedback) => {
      for (const [field, value] of Object.entries(feedback)) {
        const condition = "chatbot = ? AND chatId = ? AND id = ?";
        run(`UPDATE entries SET ${field} = ? WHERE ${condition}`, [value, chatbot, chat, id]);
      }
      return findEntry(chatbot, chat, id);
    }),
    countVisitorErasure: verb((chatbot, apiKeyId) => {
      const day = Math.floor(now / 86_400_000);
      const add = "ON CONFLICT DO UPDATE SET chats = chats + 1, time = excluded.time";
      insert("visitorErasures", { chatbot, apiKeyId, day, time: now, chats: 1 }, add);
    }),
    visitorErasures: verb((limit) => {
      const columns = "chatbot, apiKeyId, time, chats";
      const newest = `SELECT ${columns} FROM visitorErasures ORDER BY time DESC LIMIT ?`;
      const rows = all<VisitorErasures & { readonly time: number & Date }>(newest, [limit]);
      return rows.map((row) => ({ ...row, time: new Date(row.time) }));
    }),
    chat: verb((chatbot, id) => {
      const row = first<ChatColumns & { lastEntryTime: number | null; turn: string }>(
        "SELECT * FROM chats WHERE chatbot = ? AND id = ?",
        [chatbot, id],
      );
      if (row === undefined) return null;
      const lastEntryTime = row.lastEntryTime === null ? null : new Date(row.lastEntryTime);
      return { chat: toChat(row), lastEntryTime, ...JSON.parse(row.turn) };
    }),
    latestChatTime: verb((chatbot) => {
      const statement = "SELECT latestChatTime AS time FROM chatbots WHERE id = ?";
      const time = first<{ time: number | null }>(statement, [chatbot])?.time ?? null;
      return time === null ? null : new Date(time);
    }),
    insertChat: verb(insertChat),
    setTurn: verb((chatbot, id, { turn, turnUntil, waiting }) => {
      const text = JSON.stringify({ turn, turnUntil, waiting });
      run("UPDATE chats SET turn = ?3 WHERE chatbot = ?1 AND id = ?2", [chatbot, id, text]);
    }),
    entry: verb(findEntry),
    newestEntries: verb((chatbot, chat, before, limit) =>
      all<EntryColumns>(
        `SELECT ${entryColumns} FROM entries WHERE chatbot = ? AND chatId = ? AND id < ?
         ORDER BY id DESC LIMIT ?`,
        [chatbot, chat, before, limit],
      ).map(toEntry),
    ),
    insertEntry: verb(insertEntry),
    hasChats: verb(
      (chatbot) => first("SELECT 1 FROM chats WHERE chatbot = ?", [chatbot]) !== undefined,
    ),
    insertRecords: (chatbot, records) =>
      Effect.flatMap(insertRecords(chatbot, records), (isDone) =>
        isDone
          ? Effect.void
          : Effect.fail(new ImportRefused({ reason: "two entries have the same id" })),
      ),
    endImport: verb((chatbot) => {
      run(
        `UPDATE sequences SET last = max(last, coalesce(CASE kind
         WHEN 'chat' THEN (SELECT max(id) FROM chats WHERE chatbot = ?1)
         ELSE (SELECT max(id) FROM entries WHERE chatbot = ?1) END, 0))`,
        [chatbot],
      );
    }),

    idempotencyKey: verb((chatbot, key) => {
      const statement = "SELECT record FROM idempotencyKeys WHERE chatbot = ? AND key = ?";
      const row = first<{ record: string }>(statement, [chatbot, key]);
      return row === undefined ? null : JSON.parse(row.record);
    }),
    setIdempotencyKey: verb((chatbot, key, row) => {
      run("DELETE FROM idempotencyKeys WHERE chatbot = ? AND key = ?", [chatbot, key]);
      if (row === null) return;
      const { chatId, madeAt } = row;
      insert("idempotencyKeys", { chatbot, key, madeAt, chatId, record: JSON.stringify(row) });
    }),
    sweepIdempotencyKeys: verb((chatbot, madeBy) => {
      run("DELETE FROM idempotencyKeys WHERE chatbot = ? AND madeAt <= ?", [chatbot, madeBy]);
    }),
    spent: verb((chatbot, apiKeyId, day) => {
      const statement =
        "SELECT tokens FROM spending WHERE chatbot = ? AND apiKeyId = ? AND day = ?";
      return first<{ tokens: number }>(statement, [chatbot, apiKeyId, day])?.tokens ?? 0;
    }),
    spend: verb((chatbot, apiKeyId, day, tokens) => {
      if (findChatbot(chatbot) === null) return;
      const add = "ON CONFLICT DO UPDATE SET tokens = tokens + excluded.tokens";
      insert("spending", { chatbot, apiKeyId, day, tokens }, add);
    }),

    usage: verb((chatbot, since, by) =>
      all<UsageSum>(
        `SELECT CASE ?3 WHEN 'day' THEN date(createTime / 1000.0, 'unixepoch') WHEN 'key' THEN apiKeyId
             WHEN 'userRef' THEN (SELECT userRef FROM chats WHERE chatbot = ?1 AND id = chatId)
           END AS "group", usage ->> 'provider' AS provider, usage ->> 'model' AS model,
           count(*) AS answers, total(usage ->> 'attempts') AS attempts,
           total(usage ->> 'promptTokens') AS promptTokens,
           total(usage ->> 'completionTokens') AS completionTokens
         FROM entries WHERE chatbot = ?1 AND question <> '' AND NOT flagged AND createTime >= ?2
         GROUP BY 1, 2, 3`,
        [chatbot, since.getTime(), by],
      ).map((row) => ({ ...row })),
    ),
    chatPage: verb((chatbot, query) => pageOfChats(sql, chatbot, query)),
    entryPage: verb((...values) => pageOfEntries(sql, ...values)),
  };

  return {
    ...tx,
    recordUse: verb((keyIds: ReadonlyArray<string>) => {
      const use = "record = json_set(record, '$.lastUsedAt', ?2)";
      const time = new Date(now).toISOString();
      for (const id of keyIds) run(`UPDATE apiKeys SET ${use} WHERE id = ?1`, [id, time]);
    }),
    // Foreign keys delete all rows that refer to a chat.
    erase: verb((chatbot: ChatbotId, which: DatedErasure) => {
      const { chat, key, value } = conditionsOf(which);
      const erased = run(`DELETE FROM chats WHERE chatbot = ?1 AND ${chat}`, [chatbot, value]);
      run("UPDATE chatbots SET chats = chats - ?2 WHERE id = ?1", [chatbot, erased]);
      const isOfVisitor = "chatbot = ?1 AND chatId IS NULL AND instr(key, char(10)) > 0";
      const eraseKeys = `DELETE FROM idempotencyKeys WHERE ${isOfVisitor} AND ${key}`;
      if (run(eraseKeys, [chatbot, value]) + erased > 0) onErasure();
      return erased;
    }),
    records: verb((chatbot: ChatbotId, userRef: string | null) =>
      all<ChatColumns>(
        `SELECT ${chatColumns} FROM chats
         WHERE chatbot = ?1 AND (?2 IS NULL OR userRef = ?2) ORDER BY id`,
        [chatbot, userRef],
      ).flatMap((chat): Array<ArchiveRecord> => [
        { _tag: "Chat", chat: toChat(chat) },
        ...all<EntryColumns & { readonly usage: string | null }>(
          `SELECT ${allEntryColumns}, usage FROM entries WHERE chatbot = ? AND chatId = ? ORDER BY id`,
          [chatbot, chat.id],
        ).map(({ usage, ...row }) => {
          const stored = usage === null ? null : JSON.parse(usage);
          return { _tag: "Entry" as const, entry: toEntry(row), usage: stored };
        }),
      ]),
    ),
    feedback: verb((chatbot: ChatbotId, since: Date, kind: FeedbackKind) => {
      const conditions = {
        rated: "rating IS NOT NULL",
        unanswered: `metadata LIKE '%"found":false%'`,
      };
      return all<
        Omit<EntryRow, "entry" | "usage"> & EntryColumns & { readonly usage: string | null }
      >(
        `SELECT ${allEntryColumns}, usage, apiKeyId, requestId FROM entries
         WHERE chatbot = ? AND createTime >= ? AND ${conditions[kind]} ORDER BY id DESC`,
        [chatbot, since.getTime()],
      ).map(({ apiKeyId, requestId, usage, ...row }): EntryRow => ({
        entry: toEntry(row),
        usage: usage === null ? null : JSON.parse(usage),
        apiKeyId,
        requestId,
      }));
    }),
  };
};

/** What a transaction may do. */
export type SqliteTx = ReturnType<typeof makeTx>;

/** How bodies are run: see `Rows`. */
export interface Transactions {
  readonly write: <A, E, R>(
    body: (tx: SqliteTx) => Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | StorageUnavailable, R>;
  readonly read: Transactions["write"];
}

export const makeRows = ({ read, write }: Transactions): Rows => ({
  isSynchronous: true,
  write: (_scope, body) => write(body),
  read,
  now: Clock.currentTimeMillis,
  recordUse: (keyIds) => write((tx) => tx.recordUse(keyIds)),
  erase: (chatbot, which, onErased) =>
    Effect.uninterruptible(
      Effect.map(
        write((tx) => tx.erase(chatbot, which)),
        onErased,
      ),
    ),
  feedback: (...values) => Stream.fromIterableEffect(read((tx) => tx.feedback(...values))),
  // Read in one go: a transaction that stays open would hold up every other fiber.
  records: (chatbot, userRef) =>
    Stream.fromIterableEffect(read((tx) => tx.records(chatbot, userRef))),
});
