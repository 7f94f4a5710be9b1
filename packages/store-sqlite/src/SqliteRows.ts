/**
 * `@parley/store-sqlite/rows`: the verbs of a store as statements. They need nothing but `Sql`, so they run wherever
 * SQLite does.
 */
import {
  bytesPerRow,
  erasedUsageDays,
  dayMillis,
  dayNumber,
  dayOf,
  daysOf,
  type ArchiveRecord,
  type AuditRecord,
  type Chat,
  type Chatbot,
  type ChatbotId,
  type ChatbotSize,
  type ChatId,
  type DatedErasure,
  defaultSettings,
  type EntryRow,
  erasesChat,
  erasesKey,
  fold,
  type Lists,
  type RegisteredKey,
  type Rows,
  StorageUnavailable,
  type Tx,
  type UsageSum,
  type VisitorErasures,
} from "@parley/core/ports";
import { Clock, Effect, Option, Stream } from "effect";
import { pageOfChats, pageOfEntries } from "./SqliteLists.ts";
import {
  chatColumns,
  type ChatColumns,
  allEntryColumns,
  entryColumns,
  type EntryColumns,
  type Background,
  type Sql,
  toChat,
  toEntry,
  type Value,
} from "./SqliteTables.ts";

export { type Sql, tables } from "./SqliteTables.ts";

/** The UTC day of an entry. */
const dayColumn = "date(createTime / 1000.0, 'unixepoch')";
const isAnswer = "question <> '' AND NOT flagged";
const modelColumns = "usage ->> 'provider' AS provider, usage ->> 'model' AS model";
const costs = ["answers", "attempts", "promptTokens", "completionTokens"];
const costColumns = costs
  .map(
    (cost) =>
      (cost === "answers" ? "count(*)" : `ifnull(sum(usage ->> '${cost}'), 0)`) + ` AS ${cost}`,
  )
  .join();

/** Counts the entries in an index, and estimates their bytes from a hundred ids of each chatbot at equal distances. */
const sizesOfChatbots = `
  WITH RECURSIVE steps (step) AS (SELECT 1 UNION ALL SELECT step + 2 FROM steps WHERE step < 199),
    counts AS (SELECT chatbot, count(*) AS entries, min(id) AS first, max(id) AS last FROM entries GROUP BY chatbot)
  SELECT chatbots.id AS chatbot, chats, ifnull(entries, 0) AS entries,
    CAST((chats + ifnull(entries, 0)) * ${bytesPerRow} + ifnull(entries, 0) * ifnull((SELECT avg((
      SELECT octet_length(question) + octet_length(answer) + ifnull(octet_length(metadata), 0) FROM entries
      WHERE chatbot = chatbots.id AND id >= first + step * (last - first + 1) / 200 ORDER BY id LIMIT 1
    )) FROM steps), 0) AS INTEGER) AS bytes
  FROM chatbots LEFT JOIN counts ON counts.chatbot = chatbots.id`;

type ChatbotColumns = Omit<Chatbot, "settings"> & { readonly settings: string };
const chatbotColumns = "id, workspaceName, name, description, settings";
const toChatbot = ({ settings, ...row }: ChatbotColumns): Chatbot => ({
  ...row,
  settings: { ...defaultSettings, ...JSON.parse(settings) },
});

const expiries = `
  SELECT (
    SELECT json_group_array(id ORDER BY id) FROM chatbots WHERE settings ->> 'retentionDays' IS NOT NULL
  ) AS chatbots, (
    SELECT min(record ->> 'expiresAt') FROM apiKeys
    WHERE record ->> 'revokedAt' IS NULL AND record ->> 'expiresAt' > ?1
  ) AS nextKey`;

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

type StoredChat = ChatColumns & { readonly lastEntryTime: number | null };
const toChatRow = (row: StoredChat) => ({
  chat: toChat(row),
  lastEntryTime: row.lastEntryTime === null ? null : new Date(row.lastEntryTime),
});

/** How many chats a transaction of an erasure reads at most. */
const chatsRead = 200;
/** How many chats it deletes at most. */
const chatsAtOnce = 25;
/** How many entries, or how many idempotency keys of a deleted chatbot, it deletes at most. */
const entriesAtOnce = 250;
/** How many bytes of entries it deletes at most, unless a single entry has more, because SQLite overwrites them. */
const bytesAtOnce = 2 ** 20;
const bytesOfEntry = ["question", "answer", "metadata", "comment"]
  .map((column) => `ifnull(octet_length(${column}), 0)`)
  .join(" + ");

/** @param now returns the time of the transaction in progress */
export const makeTx = (sql: Sql, now: () => number) => {
  const { all, background, onErasure, run, toFailure } = sql;
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

  const inBackground = <Row>(statement: string, values: ReadonlyArray<Value>) =>
    Effect.map(
      background.read([[statement, values]]),
      ([rows]) => rows as ReadonlyArray<unknown> as ReadonlyArray<Row>,
    ).pipe(
      Effect.catchTag(
        "Overloaded",
        (cause) => new StorageUnavailable({ cause, reason: "timeout" }),
      ),
    );

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
    for (const record of records)
      if (record._tag === "Chat") insertChat(chatbot, record.chat);
      else
        insertEntry(chatbot, {
          entry: record.entry,
          usage: record.usage,
          apiKeyId: null,
          requestId: null,
        });
  });

  /** Deletes chats and their idempotency keys, and notes in `remains` that their entries are to be deleted. */
  const deleteChats = (chatbot: number, ids: ReadonlyArray<number>) => {
    const values = [chatbot, JSON.stringify(ids)];
    const idList = "(SELECT value FROM json_each(?2))";
    run(`DELETE FROM chats WHERE chatbot = ?1 AND id IN ${idList}`, values);
    run(`DELETE FROM idempotencyKeys WHERE chatbot = ?1 AND chatId IN ${idList}`, values);
    run("INSERT INTO remains SELECT ?1, value FROM json_each(?2)", values);
    run("UPDATE chatbots SET chats = chats - ?2 WHERE id = ?1", [chatbot, ids.length]);
  };

  /**
   * Deletes some chats of a deleted chatbot or, after the last, keys. Entries of chats that are gone, which an earlier
   * process may have left, are noted in `remains`, too.
   */
  const clearChatbot = (chatbot: number): void => {
    const chats = `SELECT id FROM chats WHERE chatbot = ? LIMIT ${chatsAtOnce}`;
    const ids = all<{ readonly id: number }>(chats, [chatbot]).map(({ id }) => id);
    if (ids.length > 0) return deleteChats(chatbot, ids);
    const ofEntries = `SELECT DISTINCT chatbot, chatId FROM entries WHERE chatbot = ? LIMIT ${chatsAtOnce}`;
    if (run(`INSERT INTO remains ${ofEntries}`, [chatbot]) > 0) return;
    const some = `SELECT key FROM idempotencyKeys WHERE chatbot = ?1 LIMIT ${entriesAtOnce}`;
    if (run(`DELETE FROM idempotencyKeys WHERE chatbot = ?1 AND key IN (${some})`, [chatbot]) === 0)
      run("DELETE FROM remains WHERE chatbot = ?", [chatbot]);
  };

  const hasRemains = (ofChats: boolean) => {
    const condition = ofChats ? "WHERE chatId IS NOT NULL" : "";
    return first(`SELECT 1 FROM remains ${condition} LIMIT 1`, []) !== undefined;
  };

  /**
   * Deletes some of what erased chats have left or, if there is nothing, some of what deleted chatbots have left.
   * Returns whether there may be more.
   *
   * @param ofChats whether deleted chatbots do not matter: an erasure does not wait for them
   */
  const clear = (ofChats: boolean): boolean => {
    if (!hasRemains(ofChats)) return false;
    onErasure();
    run("UPDATE file SET erasedAt = ?", [now()]);
    if (!hasRemains(true)) {
      const { chatbot } = first<{ readonly chatbot: number }>("SELECT chatbot FROM remains", [])!;
      clearChatbot(chatbot);
    }
    clearEntries();
    return hasRemains(ofChats);
  };

  /** Deletes some entries of erased chats, and keeps what their answers cost. */
  const clearEntries = (): void => {
    const entries = all<{ readonly rowid: number; readonly bytes: number }>(
      `SELECT entries.rowid, ${bytesOfEntry} AS bytes
       FROM remains CROSS JOIN entries USING (chatbot, chatId) LIMIT ${entriesAtOnce}`,
    );
    let bytes = 0;
    const some = entries.filter(
      (entry, index) => (bytes += entry.bytes) <= bytesAtOnce || index === 0,
    );
    const ids = JSON.stringify(some.map(({ rowid }) => rowid));
    run(
      `INSERT INTO erasedUsage SELECT chatbot, ${dayColumn}, apiKeyId, ${modelColumns}, ${costColumns}
       FROM entries WHERE rowid IN (SELECT value FROM json_each(?)) AND ${isAnswer}
         AND chatbot IN (SELECT id FROM chatbots)
       GROUP BY 1, 2, 3, 4, 5
       ON CONFLICT DO UPDATE SET ${costs.map((cost) => `${cost} = ${cost} + excluded.${cost}`).join()}`,
      [ids],
    );
    const oldest = dayOf(new Date(now() - erasedUsageDays * dayMillis));
    const ofChatbots = "chatbot IN (SELECT chatbot FROM remains)";
    run(`DELETE FROM erasedUsage WHERE ${ofChatbots} AND day < ?`, [oldest]);
    run("DELETE FROM entries WHERE rowid IN (SELECT value FROM json_each(?))", [ids]);
    if (some.length === entries.length && entries.length < entriesAtOnce)
      run("DELETE FROM remains WHERE chatId IS NOT NULL", []);
  };

  const tx: Tx & Lists = {
    get now() {
      return now();
    },
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
    expiries: () =>
      Effect.map(
        inBackground<{ chatbots: string; nextKey: string | null }>(expiries, [
          new Date(now()).toISOString(),
        ]),
        ([row]) => ({
          chatbots: JSON.parse(row!.chatbots),
          nextKey: row!.nextKey === null ? null : new Date(row!.nextKey),
        }),
      ),
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
    deleteChatbot: verb((id) => {
      run("DELETE FROM chatbots WHERE id = ?", [id]);
      for (const table of ["apiKeys", "spending", "erasedUsage"])
        run(`DELETE FROM ${table} WHERE chatbot = ?`, [id]);
      insert("remains", { chatbot: id, chatId: null });
    }),
    grant: verb((keyId) => {
      const row = findKey("id = ?", [keyId]);
      return row === undefined
        ? null
        : { key: toKey(row), chatbot: findChatbot(row.chatbot)!, now: now() };
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
      for (const entry of entries) insert("audit", { time: now(), ...entry });
    }),
    auditLog: verb((limit, userRef) =>
      all<Omit<AuditRecord, "time"> & { readonly time: number }>(
        `SELECT time, actor, chatbot, action, detail FROM audit
         ${userRef === undefined ? "" : "WHERE detail LIKE '%sha256:%'"} ORDER BY id DESC LIMIT ?`,
        [userRef === undefined ? limit : -1],
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
      const time = now();
      const day = dayNumber(time);
      const add = "ON CONFLICT DO UPDATE SET chats = chats + 1, time = excluded.time";
      insert("visitorErasures", { chatbot, apiKeyId, day, time, chats: 1 }, add);
    }),
    visitorErasures: verb((limit) => {
      const columns = "chatbot, apiKeyId, time, chats";
      const newest = `SELECT ${columns} FROM visitorErasures ORDER BY time DESC, chatbot, apiKeyId LIMIT ?`;
      const rows = all<VisitorErasures & { readonly time: number & Date }>(newest, [limit]);
      return rows.map((row) => ({ ...row, time: new Date(row.time) }));
    }),
    chat: verb((chatbot, id) => {
      const statement = "SELECT * FROM chats WHERE chatbot = ? AND id = ?";
      const row = first<StoredChat & { turn: string }>(statement, [chatbot, id]);
      return row === undefined ? null : { ...toChatRow(row), ...JSON.parse(row.turn) };
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
      (chatbot) =>
        first(
          "SELECT 1 FROM chats WHERE chatbot = ?1 UNION ALL SELECT 1 FROM remains WHERE chatbot = ?1",
          [chatbot],
        ) !== undefined,
    ),
    insertRecords,
    endImport: verb((chatbot, { chat, chatTime, entry }) => {
      const last = "last = max(last, CASE kind WHEN 'chat' THEN ? ELSE ? END)";
      run(`UPDATE sequences SET ${last}`, [chat, entry]);
      const latest = "latestChatTime = max(coalesce(latestChatTime, ?2), ?2)";
      if (chat > 0) run(`UPDATE chatbots SET ${latest} WHERE id = ?1`, [chatbot, chatTime]);
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
      run("DELETE FROM spending WHERE chatbot = ? AND apiKeyId = ? AND day < ?", [
        chatbot,
        apiKeyId,
        day,
      ]);
    }),

    usage: (chatbot, { by = null, since, until = null }) => {
      const userRef = "(SELECT userRef FROM chats WHERE chatbot = ?1 AND id = chatId)";
      const groupBy = (day: string, user: string) =>
        `CASE ?3 WHEN 'day' THEN ${day} WHEN 'key' THEN apiKeyId WHEN 'userRef' THEN ${user} END AS "group"`;
      const statement = `SELECT "group", provider, model, ${costs.map((cost) => `sum(${cost}) AS ${cost}`).join()}
         FROM (
           SELECT ${groupBy(dayColumn, userRef)}, ${modelColumns}, ${costColumns} FROM entries
           WHERE chatbot = ?1 AND ${isAnswer} AND createTime >= ?2 AND (?4 IS NULL OR createTime < ?4)
           GROUP BY 1, 2, 3
           UNION ALL
           SELECT ${groupBy("day", "NULL")}, provider, model, ${costs.join()} FROM erasedUsage
           WHERE chatbot = ?1 AND day >= ?5 AND (?6 IS NULL OR day < ?6)
         ) GROUP BY 1, 2, 3`;
      const { before, first } = daysOf({ since, until });
      const values = [chatbot, since.getTime(), by, until && until.getTime(), first, before];
      return inBackground<UsageSum>(statement, values);
    },
    sizes: () => inBackground<ChatbotSize>(sizesOfChatbots, []),
    chatPage: (chatbot, query) => Effect.flatten(verb(() => pageOfChats(sql, chatbot, query))()),
    entryPage: (...values) => Effect.flatten(verb(() => pageOfEntries(sql, ...values))()),
  };

  return Object.assign(tx, {
    recordUse: verb((keyIds: ReadonlyArray<string>) => {
      const use = "record = json_set(record, '$.lastUsedAt', ?2)";
      const time = new Date(now()).toISOString();
      for (const id of keyIds) run(`UPDATE apiKeys SET ${use} WHERE id = ?1`, [id, time]);
    }),
    /**
     * Erases the next chats with ids above `after` and, after the last, keys without a chat. Returns the number of chats,
     * from where to go on, and whether the chats have left nothing that `clear` must delete.
     */
    eraseChats: verb((chatbot: ChatbotId, which: DatedErasure, after: number) => {
      const [from, ofUser, user] =
        which._tag === "UserRef"
          ? ["INDEXED BY chatsOfUser", "AND userRef = ?3", [which.userRef]]
          : ["", "", []];
      const rows = all<StoredChat>(
        `SELECT ${chatColumns}, lastEntryTime FROM chats ${from} WHERE chatbot = ?1 AND id > ?2 ${ofUser}
         ORDER BY id LIMIT ${which._tag === "Chat" ? 1 : chatsRead}`,
        [chatbot, after, ...user],
      );
      const ids = rows
        .filter((row) => erasesChat(which, toChatRow(row)))
        .map(({ id }) => id)
        .slice(0, chatsAtOnce);
      if (ids.length > 0) deleteChats(chatbot, ids);
      const isLast = which._tag === "Chat" || (rows.length < chatsRead && ids.length < chatsAtOnce);
      if (isLast && which._tag !== "Chat") {
        const keysWithoutChat = all<{ readonly key: string; readonly record: string }>(
          "SELECT key, record FROM idempotencyKeys WHERE chatbot = ? AND chatId IS NULL",
          [chatbot],
        );
        for (const { key, record } of keysWithoutChat) {
          if (!erasesKey(which, key, JSON.parse(record))) continue;
          run("DELETE FROM idempotencyKeys WHERE chatbot = ? AND key = ?", [chatbot, key]);
          onErasure();
        }
      }
      const last = ids[chatsAtOnce - 1] ?? rows.at(-1)?.id ?? null;
      return { erased: ids.length, next: isLast ? null : last, isClear: !clear(true) };
    }),
    clear: verb(clear),
    /** Whether texts have been erased since the file was rewritten, at least a day ago. */
    isRewriteDue: verb(() => {
      const condition = "erasedAt >= rewrittenAt AND rewrittenAt < ?";
      return first(`SELECT 1 FROM file WHERE ${condition}`, [now() - dayMillis]) !== undefined;
    }),
    recordRewrite: verb(() => void run("UPDATE file SET rewrittenAt = ?", [now()])),
  });
};

/** What a transaction may do. */
export type SqliteTx = ReturnType<typeof makeTx>;

/** How bodies are run: see `Rows`. */
export interface Transactions {
  readonly write: <A, E, R>(
    body: (tx: SqliteTx) => Effect.Effect<A, E, R>,
  ) => Effect.Effect<A, E | StorageUnavailable, R>;
  readonly read: Transactions["write"];
  /** Removes erased text from the write-ahead log. */
  readonly emptyLog: Effect.Effect<void>;
  readonly background: Background;
  /** Rewrites the file if that is due. */
  readonly rewriteIfDue: Effect.Effect<void, StorageUnavailable>;
}

/**
 * Between two transactions of a long operation, other processes get a turn: they try every 2 ms. Beside an erasure, asks
 * take 19 ms (p99) with 20 ms between its transactions, 27 with 12, and 15 without an erasure.
 */
const pause = Effect.callback<void>((resume) => {
  const timer = setTimeout(() => resume(Effect.void), 20);
  return Effect.sync(() => clearTimeout(timer));
});

const pageSize = 200;
/** Emits rows page by page, in order of ids. `read` returns those after the given id. */
const pages = <Row extends { readonly id: number }>(
  start: number,
  read: (from: number) => Effect.Effect<ReadonlyArray<Row>, StorageUnavailable>,
) =>
  Stream.paginate(start, (from: number) =>
    Effect.map(read(from), (rows) => {
      const next = rows.length < pageSize ? Option.none<number>() : Option.some(rows.at(-1)!.id);
      return [rows, next] as const;
    }),
  );

type Read = <Row>(
  text: string,
  values: ReadonlyArray<Value>,
) => Effect.Effect<ReadonlyArray<Row>, StorageUnavailable>;

const exportedChats = `SELECT ${chatColumns}, entries FROM chats
  WHERE chatbot = ?1 AND (?2 IS NULL OR userRef = ?2) AND id > ?3 ORDER BY id LIMIT ${pageSize}`;
const exportedEntries = `SELECT ${allEntryColumns}, usage FROM entries
  WHERE chatbot = ? AND chatId = ? AND id > ? ORDER BY id LIMIT ${pageSize}`;
const entriesOfChats = `SELECT ${allEntryColumns}, usage FROM entries
  WHERE chatbot = ? AND chatId IN (SELECT value FROM json_each(?)) ORDER BY chatId, id`;
const feedbackConditions = {
  rated: "rating IS NOT NULL",
  unanswered: `metadata LIKE '%"found":false%'`,
};
type StoredUsage = { readonly usage: string | null };
type StoredEntry = EntryColumns & StoredUsage;
const toEntryRecord = ({ usage, ...row }: StoredEntry): ArchiveRecord => ({
  _tag: "Entry",
  entry: toEntry(row),
  usage: usageOf({ usage }),
});
const usageOf = ({ usage }: StoredUsage) => (usage === null ? null : JSON.parse(usage));

export const makeRows = ({ background, emptyLog, read, rewriteIfDue, write }: Transactions) => {
  /** Deletes what `clear` of the transaction deletes; the texts may stay in the write-ahead log. */
  const clearRows = Effect.fnUntraced(function* (ofChats: boolean) {
    while (yield* write((tx) => tx.clear(ofChats))) yield* pause;
  });
  const clear = Effect.andThen(clearRows(false), emptyLog);
  const onSnapshot = <A>(stream: (read: Read) => Stream.Stream<A, StorageUnavailable>) =>
    Stream.unwrap(
      Effect.map(background.snapshot, (run) => stream((...query) => run(query) as never)),
    );
  const rows: Rows = {
    recordsAtOnce: 500,
    write: (scope, body) => {
      // The ids of an import may be those of chats that are being erased.
      const written =
        scope._tag === "Import" ? Effect.andThen(clearRows(true), write(body)) : write(body);
      // Only a deleted chatbot leaves anything.
      return scope._tag === "Registry" ? Effect.tap(written, clear) : written;
    },
    read,
    now: Clock.currentTimeMillis,
    recordUse: (keyIds) => write((tx) => tx.recordUse(keyIds)),
    erase: Effect.fnUntraced(function* (chatbot, which, onErased) {
      for (let next: number | null = which._tag === "Chat" ? which.id - 1 : 0; next !== null;) {
        const after: number = next;
        const part = yield* write((tx) => tx.eraseChats(chatbot, which, after)).pipe(
          Effect.tap(({ erased }) => Effect.sync(() => onErased(erased))),
          Effect.uninterruptible,
        );
        if (!part.isClear) yield* clearRows(true);
        ({ next } = part);
        if (next !== null) yield* pause;
      }
      yield* emptyLog;
      if (which._tag === "IdleSince") yield* rewriteIfDue;
    }),
    feedback: (chatbot, since, kind) => {
      type Row = Omit<EntryRow, "entry" | "usage"> & EntryColumns & StoredUsage;
      const text = `SELECT ${allEntryColumns}, usage, apiKeyId, requestId FROM entries
        WHERE chatbot = ? AND createTime >= ? AND id < ? AND ${feedbackConditions[kind]}
        AND EXISTS (SELECT 1 FROM chats WHERE chats.chatbot = entries.chatbot AND chats.id = chatId)
        ORDER BY id DESC LIMIT ${pageSize}`;
      return onSnapshot((read) =>
        pages(2 ** 53, (before) => read<Row>(text, [chatbot, since.getTime(), before])),
      ).pipe(
        Stream.map(({ apiKeyId, requestId, usage, ...row }) => ({
          entry: toEntry(row),
          usage: usageOf({ usage }),
          apiKeyId,
          requestId,
        })),
      );
    },
    records: (chatbot, userRef) =>
      onSnapshot((read) => {
        const toRecord = (chat: ChatColumns): ArchiveRecord => ({
          _tag: "Chat",
          chat: toChat(chat),
        });
        const readChat = (chat: ChatColumns) =>
          pages(0, (after) => read<StoredEntry>(exportedEntries, [chatbot, chat.id, after])).pipe(
            Stream.map(toEntryRecord),
            Stream.prepend([toRecord(chat)]),
          );
        /** Reads the entries of chats with one statement, because each statement costs a message to the thread. */
        const readChats = (chats: ReadonlyArray<ChatColumns>) =>
          Effect.map(
            read<StoredEntry>(entriesOfChats, [chatbot, JSON.stringify(chats.map(({ id }) => id))]),
            (entries) => {
              const byChat = new Map<number, Array<ArchiveRecord>>();
              for (const { id } of chats) byChat.set(id, []);
              for (const entry of entries) byChat.get(entry.chatId)!.push(toEntryRecord(entry));
              return chats.flatMap((chat) => [toRecord(chat), ...byChat.get(chat.id)!]);
            },
          );
        const isSmall = (chats: ReadonlyArray<ChatColumns>) =>
          chats.reduce((sum, { entries }) => sum + entries!, 0) <= 2_000;
        return pages(0, (after) =>
          read<ChatColumns>(exportedChats, [chatbot, userRef, after]),
        ).pipe(
          Stream.grouped(50),
          Stream.flatMap((chats) =>
            isSmall(chats)
              ? Stream.fromIterableEffect(readChats(chats))
              : Stream.flatMap(Stream.fromIterable(chats), readChat),
          ),
        );
      }),
  };
  return { rows, clear };
};
