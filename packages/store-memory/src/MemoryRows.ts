/**
 * The rows of a store in memory: the shortest implementation of `Rows`. A transaction is one synchronous step.
 */
import {
  bytesPerRow,
  ChatbotId,
  compareText,
  dayOf,
  erasesChat,
  erasesKey,
  eraseUsage,
  matchesQuery,
  pageOf,
  pickEntry,
  runInOneStep,
  sumUsage,
  type ArchiveRecord,
  type Chat,
  type ChatId,
  type EntryRow,
  type Lists,
  type Rows,
  type Tx,
} from "@parley/core/ports";
import { Clock, Effect, Exit, Stream, type Context } from "effect";
import {
  emptyTenant,
  inOrder,
  makeJournal,
  type Journal,
  type Memory,
  type StoredChat,
  type Tenant,
} from "./Memory.ts";

/** Makes a verb. It copies what it gets and what it returns, because the caller may change both. */
const verb =
  <Values extends ReadonlyArray<unknown>, A>(run: (...values: Values) => A) =>
  (...values: Values): Effect.Effect<A> =>
    Effect.sync(() => structuredClone(run(...structuredClone(values))));

const makeTx = (memory: Memory, { set }: Journal, now: number): Tx & Lists => {
  const { audit, chatbots, lastId, visitorErasures } = memory;
  /** The chatbot's tenant; for a chatbot that is not registered, an empty one that is not stored. */
  const tenantOf = (id: ChatbotId) => chatbots.get(id) ?? emptyTenant(null!);
  const chatsOf = (id: ChatbotId) => inOrder(tenantOf(id).chats);
  const setTenant = (id: ChatbotId, fields: Partial<Tenant>) =>
    set(chatbots, id, { ...tenantOf(id), ...fields });
  const setChat = (chatbot: ChatbotId, id: ChatId, fields: Partial<StoredChat>) => {
    const { chats } = tenantOf(chatbot);
    set(chats, id, { ...chats.get(id)!, ...fields });
  };
  const insertChat = (chatbot: ChatbotId, chat: Chat) => {
    const { chats, latestChatTime } = tenantOf(chatbot);
    const latest = Math.max(Number(latestChatTime ?? chat.createTime), Number(chat.createTime));
    const noTurn = { lastEntryTime: null, turn: null, turnUntil: 0, waiting: [] };
    set(chats, chat.id, { chat, entries: [], ...noTurn });
    setTenant(chatbot, { latestChatTime: new Date(latest) });
  };
  const insertEntry = (chatbot: ChatbotId, row: EntryRow) => {
    const { chatId, createTime } = row.entry;
    const { entries } = tenantOf(chatbot).chats.get(chatId)!;
    setChat(chatbot, chatId, { entries: [...entries, row], lastEntryTime: createTime });
  };
  const ownChat = (chatbot: ChatbotId, id: ChatId, visitor: string | null) => {
    const row = tenantOf(chatbot).chats.get(id);
    return row === undefined || (visitor !== null && row.chat.userRef !== visitor) ? null : row;
  };
  const insertRecords = verb((chatbot: ChatbotId, records: ReadonlyArray<ArchiveRecord>) => {
    for (const record of records)
      if (record._tag === "Chat") insertChat(chatbot, record.chat);
      else {
        const { entry, usage } = record;
        insertEntry(chatbot, { entry, usage, apiKeyId: null, requestId: null });
      }
  });
  const spent = (chatbot: ChatbotId, apiKeyId: string, day: number) => {
    const spending = tenantOf(chatbot).spending.get(apiKeyId);
    return spending?.day === day ? spending.tokens : 0;
  };
  return {
    now,
    nextId: verb((kind) => ++lastId[kind]),

    chatbots: verb((id) =>
      inOrder(chatbots)
        .filter(({ chatbot }) => id === null || chatbot.id === id)
        .map(({ apiKeys, chatbot }) => ({ chatbot, keys: [...apiKeys.values()] })),
    ),
    chatbot: verb((id) => chatbots.get(id)?.chatbot ?? null),
    expiries: verb(() => {
      const tenants = inOrder(chatbots);
      const [nextKey = null] = tenants
        .flatMap(({ apiKeys }) => [...apiKeys.values()])
        .filter(({ expiresAt, revokedAt }) => revokedAt === null && Number(expiresAt) > now)
        .map(({ expiresAt }) => expiresAt)
        .sort((a, b) => Number(a) - Number(b));
      const expiring = tenants.filter(({ chatbot }) => chatbot.settings.retentionDays !== null);
      return { chatbots: expiring.map(({ chatbot }) => chatbot.id), nextKey };
    }),
    chatbotNamed: verb((workspaceName, name) => {
      for (const { chatbot } of chatbots.values())
        if (chatbot.workspaceName === workspaceName && chatbot.name === name) return chatbot.id;
      return null;
    }),
    insertChatbot: verb((fields) => {
      const id = ChatbotId.make(++lastId.chatbot);
      set(chatbots, id, emptyTenant({ id, ...fields }));
      return id;
    }),
    setChatbot: verb((chatbot) => setTenant(chatbot.id, { chatbot })),
    deleteChatbot: verb((id) => set(chatbots, id, undefined)),
    grant: verb((keyId) => {
      for (const { apiKeys, chatbot } of chatbots.values()) {
        const key = apiKeys.get(keyId);
        if (key !== undefined) return { key, chatbot, now };
      }
      return null;
    }),
    takenKeyIds: verb((ids) =>
      ids.filter((id) => inOrder(chatbots).some(({ apiKeys }) => apiKeys.has(id))),
    ),
    apiKey: verb((chatbot, id) => tenantOf(chatbot).apiKeys.get(id) ?? null),
    insertApiKeys: verb((chatbot, keys) => {
      for (const key of keys) set(tenantOf(chatbot).apiKeys, key.id, key);
    }),
    setApiKey: verb((key) => {
      for (const { apiKeys } of chatbots.values())
        if (apiKeys.has(key.id)) set(apiKeys, key.id, key);
    }),
    audit: verb((entries) => {
      for (const entry of entries) set(audit, ++lastId.audit, { time: new Date(now), ...entry });
    }),
    auditLog: verb(() => inOrder(audit).reverse()),

    ownChat: verb((...values) => ownChat(...values)?.chat ?? null),
    renameChat: verb((chatbot, id, name, visitor) => {
      const row = ownChat(chatbot, id, visitor);
      if (row !== null) setChat(chatbot, id, { chat: { ...row.chat, name } });
      return row && { ...row.chat, name };
    }),
    rateEntry: verb((chatbot, chat, id, feedback) => {
      const entries = [...tenantOf(chatbot).chats.get(chat)!.entries];
      const index = entries.findIndex(({ entry }) => entry.id === id);
      if (index === -1) return null;
      const entry = { ...entries[index]!.entry, ...feedback };
      entries[index] = { ...entries[index]!, entry };
      setChat(chatbot, chat, { entries });
      return entry;
    }),
    countVisitorErasure: verb((chatbot, apiKeyId) => {
      const time = new Date(now);
      const name = `${chatbot} ${apiKeyId} ${dayOf(time)}`;
      const chats = (visitorErasures.get(name)?.chats ?? 0) + 1;
      set(visitorErasures, name, { chatbot, apiKeyId, time, chats });
    }),
    visitorErasures: verb((limit) =>
      [...visitorErasures.values()]
        .sort(
          (a, b) =>
            Number(b.time) - Number(a.time) ||
            a.chatbot - b.chatbot ||
            compareText(a.apiKeyId, b.apiKeyId),
        )
        .slice(0, limit),
    ),
    chat: verb((chatbot, id) => {
      const row = tenantOf(chatbot).chats.get(id);
      return row === undefined ? null : { ...row, entries: null };
    }),
    latestChatTime: verb((chatbot) => tenantOf(chatbot).latestChatTime),
    insertChat: verb(insertChat),
    setTurn: verb((chatbot, id, { turn, turnUntil, waiting }) =>
      setChat(chatbot, id, { turn, turnUntil, waiting }),
    ),
    entry: verb((chatbot, chat, id) => {
      const stored = tenantOf(chatbot)
        .chats.get(chat)
        ?.entries.find(({ entry }) => entry.id === id);
      return stored?.entry ?? null;
    }),
    newestEntries: verb((chatbot, chat, before, limit) => {
      const entries = tenantOf(chatbot).chats.get(chat)?.entries ?? [];
      const end = entries.findLastIndex(({ entry }) => entry.id < before) + 1;
      const newest = entries.slice(Math.max(0, end - limit), end);
      return newest.reverse().map(({ entry }) => pickEntry(entry, []));
    }),
    insertEntry: verb(insertEntry),
    hasChats: verb((chatbot) => tenantOf(chatbot).chats.size > 0),
    insertRecords,
    endImport: verb((_chatbot, { chat, entry }) => {
      lastId.chat = Math.max(lastId.chat, chat);
      lastId.entry = Math.max(lastId.entry, entry);
    }),

    idempotencyKey: verb((chatbot, key) => tenantOf(chatbot).idempotencyKeys.get(key) ?? null),
    setIdempotencyKey: verb((chatbot, key, row) =>
      set(tenantOf(chatbot).idempotencyKeys, key, row ?? undefined),
    ),
    sweepIdempotencyKeys: verb((chatbot, madeBy) => {
      const { idempotencyKeys } = tenantOf(chatbot);
      for (const [key, { madeAt }] of idempotencyKeys)
        if (madeAt <= madeBy) set(idempotencyKeys, key, undefined);
    }),
    spent: verb(spent),
    spend: verb((chatbot, apiKeyId, day, tokens) =>
      set(tenantOf(chatbot).spending, apiKeyId, {
        day,
        tokens: spent(chatbot, apiKeyId, day) + tokens,
      }),
    ),

    usage: verb((chatbot, query) => {
      const rows = chatsOf(chatbot).flatMap(({ chat, entries }) =>
        entries.map((entry) => ({ ...entry, userRef: chat.userRef })),
      );
      return sumUsage(rows, tenantOf(chatbot).erasedUsage, query);
    }),
    sizes: verb(() =>
      inOrder(chatbots).map(({ chatbot, chats }) => {
        const entries = inOrder(chats).flatMap((chat) => chat.entries);
        const texts = entries.map(({ entry: { answer, metadata, question } }) =>
          [question, answer, metadata && JSON.stringify(metadata)].join(""),
        );
        const bytes = Buffer.byteLength(texts.join("")) + bytesPerRow * (chats.size + texts.length);
        return { chatbot: chatbot.id, chats: chats.size, entries: texts.length, bytes };
      }),
    ),
    chatPage: verb((chatbot, query) => {
      const chats = chatsOf(chatbot)
        .filter(({ chat }) => matchesQuery(chat, query))
        .map(({ chat, entries, lastEntryTime }) => ({
          ...chat,
          lastEntryTime: lastEntryTime ?? chat.createTime,
          entries: entries.length,
        }));
      const { items, total } = pageOf(chats, query);
      const withoutActivity = ({ entries: _, lastEntryTime: __, ...chat }: Chat) => chat;
      return { items: query.include.length > 0 ? items : items.map(withoutActivity), total };
    }),
    entryPage: verb((chatbot, chat, { after, id, include, ...query }, visitor) => {
      const row = ownChat(chatbot, chat, visitor);
      if (row === null) return null;
      const entries = row.entries
        .map(({ entry }) => pickEntry(entry, include))
        .filter((entry) => id === null || entry.id === id)
        .filter((entry) => after === null || entry.id > after);
      return pageOf(entries, query);
    }),
  };
};

export const makeRows = (memory: Memory): Rows => {
  const transaction = <A, E, R>(body: (tx: Tx & Lists) => Effect.Effect<A, E, R>) =>
    Effect.flatMap(Clock.currentTimeMillis, (now) =>
      Effect.contextWith((context: Context.Context<R>): Effect.Effect<A, E> => {
        const journal = makeJournal();
        const exit = runInOneStep(body(makeTx(memory, journal, now)), context);
        if (Exit.isFailure(exit)) journal.rollBack();
        return exit;
      }),
    );
  const tenantOf = (id: ChatbotId) => memory.chatbots.get(id) ?? emptyTenant(null!);
  return {
    recordsAtOnce: Infinity,
    write: (_scope, body) => transaction(body),
    read: transaction,
    now: Clock.currentTimeMillis,
    recordUse: (keyIds) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        for (const { apiKeys } of memory.chatbots.values())
          for (const key of apiKeys.values())
            if (keyIds.includes(key.id)) apiKeys.set(key.id, { ...key, lastUsedAt: new Date(now) });
      }),
    erase: (chatbot, which, onErased) =>
      Effect.map(Clock.currentTimeMillis, (now) => {
        const tenant = tenantOf(chatbot);
        const { chats, idempotencyKeys } = tenant;
        const before = chats.size;
        const erasedChats = [...chats].filter(([, chat]) => erasesChat(which, chat));
        for (const [id] of erasedChats) chats.delete(id);
        const entries = erasedChats.flatMap(([, chat]) => chat.entries);
        const costs = entries.map((entry) => ({ ...entry, userRef: null }));
        const erasedUsage = eraseUsage(tenant.erasedUsage, costs, now);
        if (erasedChats.length > 0) memory.chatbots.set(chatbot, { ...tenant, erasedUsage });
        for (const [key, row] of idempotencyKeys)
          if (row.chatId === null ? erasesKey(which, key, row) : !chats.has(row.chatId))
            idempotencyKeys.delete(key);
        onErased(before - chats.size);
      }),
    records: (chatbot, userRef) =>
      Stream.suspend(() => {
        const chats = inOrder(tenantOf(chatbot).chats);
        const records = chats
          .filter(({ chat }) => userRef === null || chat.userRef === userRef)
          .flatMap(({ chat, entries }): Array<ArchiveRecord> => [
            { _tag: "Chat", chat },
            ...entries.map(({ entry, usage }) => ({ _tag: "Entry" as const, entry, usage })),
          ]);
        return Stream.fromIterable(structuredClone(records));
      }),
    feedback: (chatbot) =>
      Stream.suspend(() => {
        const rows = inOrder(tenantOf(chatbot).chats)
          .flatMap(({ entries }) => entries)
          .toSorted((a, b) => b.entry.id - a.entry.id);
        return Stream.fromIterable(structuredClone(rows));
      }),
  };
};
