/**
 * The state of an in-memory store, which all instances of the store share, and the writes of a transaction.
 */
import type {
  AuditRecord,
  Chatbot,
  ChatRow,
  EntryRow,
  ErasedUsage,
  KeyRow,
  RegisteredKey,
  VisitorErasures,
} from "@parley/core/ports";

export interface StoredChat extends ChatRow {
  /** In order of ids. */
  readonly entries: ReadonlyArray<EntryRow>;
}

/** A chatbot, its keys, chats, idempotency keys and spending. Rows are replaced, never changed. */
export interface Tenant {
  readonly chatbot: Chatbot;
  readonly apiKeys: Map<string, RegisteredKey>;
  readonly chats: Map<number, StoredChat>;
  readonly idempotencyKeys: Map<string, KeyRow>;
  /** What each key spent on the latest day on which it spent anything. */
  readonly spending: Map<string, { readonly day: number; readonly tokens: number }>;
  readonly latestChatTime: Date | null;
  /** What erased answers cost. */
  readonly erasedUsage: ReadonlyArray<ErasedUsage>;
}

/** The state of an in-memory store, created by {@link makeMemory}. Its fields are internal. */
export interface Memory {
  /** Keyed by id. */
  readonly chatbots: Map<number, Tenant>;
  /** Oldest first. */
  readonly audit: Map<number, AuditRecord>;
  /** Keyed by chatbot, API key and day. */
  readonly visitorErasures: Map<string, VisitorErasures>;
  readonly lastId: Record<"chatbot" | "chat" | "entry" | "audit", number>;
}

export const emptyTenant = (chatbot: Chatbot): Tenant => ({
  chatbot,
  apiKeys: new Map(),
  chats: new Map(),
  idempotencyKeys: new Map(),
  spending: new Map(),
  latestChatTime: null,
  erasedUsage: [],
});

/** Creates a memory without chats, in which these chatbots are registered without keys. */
export const makeMemory = (chatbots: ReadonlyArray<Chatbot> = []): Memory => ({
  chatbots: new Map(chatbots.map((chatbot) => [chatbot.id, emptyTenant(chatbot)])),
  audit: new Map(),
  visitorErasures: new Map(),
  lastId: { chatbot: Math.max(0, ...chatbots.map(({ id }) => id)), chat: 0, entry: 0, audit: 0 },
});

/** Writes that can be taken back. */
export const makeJournal = () => {
  const undo: Array<() => void> = [];
  return {
    /** Sets the value of a key; `undefined` deletes it. */
    set: <K, V>(map: Map<K, V>, key: K, value: V | undefined): void => {
      const before = map.get(key);
      const write = (next: V | undefined) =>
        next === undefined ? map.delete(key) : map.set(key, next);
      undo.push(() => write(before));
      write(value);
    },
    /** Takes all writes back. */
    rollBack: (): void => {
      while (undo.length > 0) undo.pop()!();
    },
  };
};

export type Journal = ReturnType<typeof makeJournal>;

/** The values of a map whose keys are ids, in order of ids. A write that was taken back may have changed their order. */
export const inOrder = <V>(map: Map<number, V>): Array<V> =>
  [...map].sort(([a], [b]) => a - b).map(([, value]) => value);
