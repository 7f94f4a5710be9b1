/**
 * What was written to one chatbot, in plain arrays, and what every reading of it must give.
 */
import type { Chat } from "../Chat.ts";
import type { ArchiveRecord, Erasable, UsageSum } from "../ChatArchive.ts";
import type { Entry, Usage } from "../Entry.ts";

interface WrittenEntry {
  readonly entry: Entry;
  readonly usage: Usage | null;
}

export interface Written {
  /** Ascending by id. */
  chats: ReadonlyArray<Chat>;
  /** By chat, ascending by id. */
  readonly entries: Map<number, ReadonlyArray<WrittenEntry>>;
  /** The newest chat that there ever was, erased ones included. */
  newest: Pick<Chat, "id" | "createTime">;
  /** All ids that entries ever had. */
  readonly entryIds: Set<number>;
}

export const makeWritten = (): Written => ({
  chats: [],
  entries: new Map(),
  newest: { id: 0, createTime: new Date(-8_640_000_000_000_000) },
  entryIds: new Set(),
});

export const isKnown = ({ entries }: Written, chat: number): boolean => entries.has(chat);

export const chatOf = ({ chats }: Written, id: number): Chat | undefined =>
  chats.find((chat) => chat.id === id);

export const entriesOf = ({ entries }: Written, chat: number): ReadonlyArray<Entry> =>
  (entries.get(chat) ?? []).map(({ entry }) => entry);

/** When the chat was last used. */
export const usedAt = (written: Written, chat: Chat): Date =>
  entriesOf(written, chat.id).at(-1)?.createTime ?? chat.createTime;

const newer = (newest: Written["newest"], chat: Chat): Written["newest"] =>
  chat.id > newest.id ? chat : newest;

export const addChat = (written: Written, chat: Chat): void => {
  written.chats = inOrder(written.chats, chat, ({ id }) => id);
  written.newest = newer(written.newest, chat);
  written.entries.set(chat.id, []);
};

export const addEntry = (written: Written, added: WrittenEntry): void => {
  const { chatId, id } = added.entry;
  const others = written.entries.get(chatId) ?? [];
  written.entries.set(
    chatId,
    inOrder(others, added, ({ entry }) => entry.id),
  );
  written.entryIds.add(id);
};

/** With one more, which is the last unless several were made at once. */
const inOrder = <A>(rows: ReadonlyArray<A>, added: A, idOf: (row: A) => number) => {
  const at = rows.findLastIndex((row) => idOf(row) < idOf(added)) + 1;
  return rows.toSpliced(at, 0, added);
};

export const addRecords = (written: Written, records: ReadonlyArray<ArchiveRecord>): void => {
  const entries = new Map<number, Array<WrittenEntry>>();
  for (const record of records) {
    if (record._tag === "Chat") {
      entries.set(record.chat.id, []);
      written.newest = newer(written.newest, record.chat);
    } else {
      const { entry, usage } = record;
      entries.get(entry.chatId)?.push({ entry, usage });
      written.entryIds.add(entry.id);
    }
  }
  const chats = records.flatMap((record) => (record._tag === "Chat" ? [record.chat] : []));
  written.chats = [...written.chats, ...chats].toSorted((a, b) => a.id - b.id);
  for (const [chat, stored] of entries) written.entries.set(chat, stored);
};

/** The chats that an erasure takes. */
export const meantBy = (written: Written, which: Erasable): ReadonlyArray<Chat> =>
  written.chats.filter((chat) => {
    if (which._tag === "Chat") return chat.id === which.id;
    if (which._tag === "UserRef") return chat.userRef === which.userRef;
    return usedAt(written, chat) < which.limit;
  });

export const remove = (written: Written, gone: ReadonlyArray<Chat>): void => {
  for (const { id } of gone) written.entries.delete(id);
  written.chats = written.chats.filter(({ id }) => isKnown(written, id));
};

export const recordsOf = ({ chats, entries }: Written): ReadonlyArray<ArchiveRecord> =>
  chats.flatMap((chat): Array<ArchiveRecord> => [
    { _tag: "Chat", chat },
    ...entries.get(chat.id)!.map((stored) => ({ _tag: "Entry" as const, ...stored })),
  ]);

export const sumsOf = ({ entries }: Written, since: Date): ReadonlyArray<UsageSum> => {
  const sums: Array<UsageSum> = [];
  for (const { entry, usage } of [...entries.values()].flat()) {
    if (usage === null || entry.createTime < since) continue;
    const { attempts, completionTokens, model, promptTokens, provider } = usage;
    const at = sums.findIndex((sum) => sum.provider === provider && sum.model === model);
    const before = sums[at];
    const sum = {
      provider,
      model,
      answers: (before?.answers ?? 0) + 1,
      attempts: (before?.attempts ?? 0) + attempts,
      promptTokens: (before?.promptTokens ?? 0) + promptTokens,
      completionTokens: (before?.completionTokens ?? 0) + completionTokens,
    };
    if (before === undefined) sums.push(sum);
    else sums[at] = sum;
  }
  return sums;
};
