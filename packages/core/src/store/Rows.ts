/**
 * What a store must do: keep rows. `storeOf` makes the five ports of it, and holds every rule about chats, turns,
 * idempotency keys, ids, times, spending, chatbots, keys and the audit log. See `docs/library/write-a-store.md`.
 *
 * Verbs may fail with `StorageUnavailable`; any other failure is a defect. They return objects of their own: what a
 * caller does with a returned object changes nothing in the store. All times that are numbers are in milliseconds since
 * the Unix epoch, on the store's clock.
 */
import type { Effect, Stream } from "effect";
import type { RegisteredKey } from "../model/ApiKey.ts";
import type { Chat } from "../model/Chat.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import type { Entry, EntryRow, Feedback } from "../model/Entry.ts";
import type { ImportRefused, Overloaded, StorageUnavailable } from "../model/Errors.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";
import type { ChatQuery, EntryQuery, Page } from "../model/ListQuery.ts";
import type {
  ArchiveRecord,
  ChatbotSize,
  DatedErasure,
  FeedbackKind,
  UsageQuery,
  UsageSum,
} from "../ports/ChatArchive.ts";
import type { AuditRecord, Expiries, RegisteredChatbot } from "../ports/ChatbotRegistry.ts";

/** The result of a verb. */
export type Verb<A, E = never> = Effect.Effect<A, E | StorageUnavailable>;

/** A chat, and what its turns need to know. */
export interface ChatRow {
  readonly chat: Chat;
  /** The creation time of the chat's newest entry; `null` if it has no entries. */
  readonly lastEntryTime: Date | null;
  /** The id of the latest turn, whose lease may have expired; `null` if that turn has ended. */
  readonly turn: string | null;
  /** When the lease of `turn` ends or, without a turn, when the latest turn ended; 0 if the chat has had none. */
  readonly turnUntil: number;
  /** The instances that wait for a turn, in the order in which they began to wait. */
  readonly waiting: ReadonlyArray<string>;
}

/** An idempotency key, which is claimed by a turn (`turnUntil` is set), completed (`chatId` is set) or stopped. */
export interface KeyRow {
  readonly fingerprint: string;
  /** When the key was claimed, completed or stopped. */
  readonly madeAt: number;
  /** The turn that claimed the key, and that stored its entry. */
  readonly turn: string | null;
  /** When the lease of `turn` ends; `null` once the key is completed or stopped. */
  readonly turnUntil: number | null;
  /** The chat of the turn, or the chat that the request created; `null` for a turn that creates a chat. */
  readonly chatId: ChatId | null;
  /** The entry that the request stored; `null` for a request that created a chat. */
  readonly entryId: number | null;
  /** Whether a client has stopped the request. */
  readonly isStopped: boolean;
}

/** How many chats the visitors of an API key have erased on a day. */
export interface VisitorErasures {
  readonly chatbot: ChatbotId;
  readonly apiKeyId: string;
  /** The time of the last erasure. */
  readonly time: Date;
  readonly chats: number;
}

/** An entry in the audit log without its time, which is the transaction's. */
export type AuditEntry = Omit<AuditRecord, "time">;

/** The greatest ids in an import, and the time of its newest chat. */
export interface Greatest {
  readonly chat: number;
  readonly entry: number;
  readonly chatTime: number;
}

/** What a transaction is about. A store may lock exactly this, and nothing wider. */
export type Scope =
  /** Chatbots and their keys. */
  | { readonly _tag: "Registry" }
  /** The chats, turns, idempotency keys and spending of a chatbot. Every verb of the body is about this chatbot. */
  | { readonly _tag: "Chatbot"; readonly chatbot: ChatbotId }
  /** An import into a chatbot, which no creation in that chatbot may interrupt. */
  | { readonly _tag: "Import"; readonly chatbot: ChatbotId };

/** Verbs that only read. */
export interface Reads {
  /** One chatbot or, with `null`, all in ascending order of id, each with its keys, the oldest first. */
  readonly chatbots: (id: ChatbotId | null) => Verb<ReadonlyArray<RegisteredChatbot>>;
  readonly chatbot: (id: ChatbotId) => Verb<Chatbot | null>;
  /** See `ChatbotRegistry.expiries`. There may be many keys: a server reads this once a minute. */
  readonly expiries: () => Verb<Expiries>;
  /** The key with this id, revoked or not, its chatbot, and the time on the store's clock; `null` if there is none. */
  readonly grant: (keyId: string) => Verb<{
    readonly key: RegisteredKey;
    readonly chatbot: Chatbot;
    readonly now: number;
  } | null>;
  /**
   * At least the newest `limit` entries in the audit log, the newest first. With a `userRef`, at least all entries that
   * contain its digest, whatever the limit; the core leaves out the others.
   */
  readonly auditLog: (limit: number, userRef?: string) => Verb<ReadonlyArray<AuditRecord>>;
  /**
   * The newest `limit` days on which the visitors of a key have erased chats, by the last erasure, the newest first; of
   * one time, by chatbot and key.
   */
  readonly visitorErasures: (limit: number) => Verb<ReadonlyArray<VisitorErasures>>;
  /** The chat; `null` if there is none or, with a `visitor`, if it has another `userRef` or none; both take as long. */
  readonly ownChat: (chatbot: ChatbotId, id: ChatId, visitor: string | null) => Verb<Chat | null>;
  /** See `ChatArchive.usage`. */
  readonly usage: (chatbot: ChatbotId, query: UsageQuery) => Verb<ReadonlyArray<UsageSum>>;
  /** See `ChatArchive.sizes`. */
  readonly sizes: () => Verb<ReadonlyArray<ChatbotSize>>;
}

/** The verbs of the registry, of the audit log and of imports. */
export interface ColdTx extends Reads {
  /** The current time. */
  readonly now: number;
  readonly audit: (entries: ReadonlyArray<AuditEntry>) => Verb<void>;

  // In the scope `Registry`
  /** The id of the chatbot with exactly this workspace and name, or `null`. */
  readonly chatbotNamed: (workspaceName: string, name: string) => Verb<ChatbotId | null>;
  /** Stores a chatbot and returns its id, which is greater than all earlier ones. */
  readonly insertChatbot: (chatbot: Omit<Chatbot, "id">) => Verb<ChatbotId>;
  readonly setChatbot: (chatbot: Chatbot) => Verb<void>;
  /** Deletes the chatbot and everything that it has, except for its entries in the audit log. */
  readonly deleteChatbot: (id: ChatbotId) => Verb<void>;
  /** Which of these ids any chatbot's key has, revoked keys included. */
  readonly takenKeyIds: (ids: ReadonlyArray<string>) => Verb<ReadonlyArray<string>>;
  /** The chatbot's key with this id, revoked or not, or `null`. */
  readonly apiKey: (chatbot: ChatbotId, id: string) => Verb<RegisteredKey | null>;
  readonly insertApiKeys: (chatbot: ChatbotId, keys: ReadonlyArray<RegisteredKey>) => Verb<void>;
  readonly setApiKey: (key: RegisteredKey) => Verb<void>;

  // In the scope `Chatbot`
  /** Renames a chat that `ownChat` would find. */
  readonly renameChat: (
    chatbot: ChatbotId,
    id: ChatId,
    name: string | null,
    visitor: string | null,
  ) => Verb<Chat | null>;
  /** Changes the given fields of an entry's feedback; `null` if the chat has no such entry. */
  readonly rateEntry: (
    chatbot: ChatbotId,
    chat: ChatId,
    id: number,
    feedback: Partial<Feedback>,
  ) => Verb<Entry | null>;
  /** Counts a chat that a visitor of the key has erased today. */
  readonly countVisitorErasure: (chatbot: ChatbotId, apiKeyId: string) => Verb<void>;

  // In the scope `Import`
  readonly hasChats: (chatbot: ChatbotId) => Verb<boolean>;
  /**
   * Stores records, whose ids and times are given. If `recordsAtOnce` is `null`, fails if two entries have the same id;
   * otherwise none have.
   */
  readonly insertRecords: (
    chatbot: ChatbotId,
    records: ReadonlyArray<ArchiveRecord>,
  ) => Verb<void, ImportRefused>;
  /** Makes later ids of chats and entries greater than these, which are the greatest of the import. */
  readonly endImport: (chatbot: ChatbotId, greatest: Greatest) => Verb<void>;
}

/** All verbs of a transaction. */
export interface Tx extends ColdTx {
  /** A new id, greater than all earlier ones of its kind, also than those of erased rows. */
  readonly nextId: (kind: "chat" | "entry") => Verb<number>;

  readonly chat: (chatbot: ChatbotId, id: ChatId) => Verb<ChatRow | null>;
  /** The creation time of the chatbot's newest chat, also if it has been erased; `null` if there has been none. */
  readonly latestChatTime: (chatbot: ChatbotId) => Verb<Date | null>;
  readonly insertChat: (chatbot: ChatbotId, chat: Chat) => Verb<void>;
  readonly setTurn: (
    chatbot: ChatbotId,
    id: ChatId,
    turn: Pick<ChatRow, "turn" | "turnUntil" | "waiting">,
  ) => Verb<void>;

  /** The entry with its metadata and its feedback. */
  readonly entry: (chatbot: ChatbotId, chat: ChatId, id: number) => Verb<Entry | null>;
  /** The chat's newest `limit` entries with ids below `before`, the newest first. */
  readonly newestEntries: (
    chatbot: ChatbotId,
    chat: ChatId,
    before: number,
    limit: number,
  ) => Verb<ReadonlyArray<Entry>>;
  readonly insertEntry: (chatbot: ChatbotId, row: EntryRow) => Verb<void>;

  readonly idempotencyKey: (chatbot: ChatbotId, key: string) => Verb<KeyRow | null>;
  /** Stores the row in place of an existing one; `null` deletes it. */
  readonly setIdempotencyKey: (chatbot: ChatbotId, key: string, row: KeyRow | null) => Verb<void>;
  /** Deletes the keys that were made at or before this time. */
  readonly sweepIdempotencyKeys: (chatbot: ChatbotId, madeBy: number) => Verb<void>;

  /** The tokens that an API key has spent on a day; days are counted from the Unix epoch. */
  readonly spent: (chatbot: ChatbotId, apiKeyId: string, day: number) => Verb<number>;
  /**
   * Adds tokens to what an API key has spent on a day, and may forget the days before; does nothing if the chatbot is
   * not registered.
   */
  readonly spend: (chatbot: ChatbotId, apiKeyId: string, day: number, tokens: number) => Verb<void>;
}

/** A page, with its total of the same snapshot. */
type PageVerb<A> = Verb<A, Overloaded>;

/** Lists, each of one snapshot. */
export interface Lists {
  readonly chatPage: (chatbot: ChatbotId, query: ChatQuery) => PageVerb<Page<Chat>>;
  /** `null` if the chat does not exist or, with a `visitor`, has another `userRef` or none; both take as long. */
  readonly entryPage: (
    chatbot: ChatbotId,
    chat: ChatId,
    query: EntryQuery,
    visitor: string | null,
  ) => PageVerb<Page<Entry> | null>;
}

/** A store that implements `ChatStore` and `TurnStore` by itself, because a round trip for each verb would be too slow. */
export interface ColdRows extends Rows<ColdTx, Reads> {}

/** A store. */
export interface Rows<T extends ColdTx = Tx, R extends Reads = Tx & Lists> {
  /**
   * After how many records of an import a transaction ends with the next whole chat, if `write` runs a body in one
   * synchronous step (see `runInOneStep`). `null` if a body may wait, for example for the next record of an import,
   * which is then one transaction.
   */
  readonly recordsAtOnce: number | null;
  /**
   * Runs the body alone among the writes of this scope, all or nothing: on every exit that is not a success, defects and
   * interruptions included, nothing stays. The body uses only `tx`, and may run again.
   */
  readonly write: <A, E, Services>(
    scope: Scope,
    body: (tx: T) => Effect.Effect<A, E, Services>,
  ) => Effect.Effect<A, E | StorageUnavailable, Services>;
  /** Runs a body that only reads. It waits for no write. */
  readonly read: <A, E>(
    body: (reads: R) => Effect.Effect<A, E>,
  ) => Effect.Effect<A, E | StorageUnavailable>;
  /** The current time. */
  readonly now: Verb<number>;
  /** Records that these keys were used just now; ignores unknown ids. */
  readonly recordUse: (keyIds: ReadonlyArray<string>) => Verb<void>;
  /**
   * Erases the chats, with their entries, turns, queues and idempotency keys, in one or more transactions. Each reports
   * how many chats it has erased, in the step that commits it. A chat that gets an entry meanwhile is not idle; chats
   * that are created meanwhile may remain. What the answers cost is added to the {@link ErasedUsage} of their day in the
   * transaction that deletes them, and what is older than `erasedUsageDays` is deleted. Then deletes the idempotency
   * keys of visitors' asks without a chat; see `ChatArchive.erase`.
   */
  readonly erase: (
    chatbot: ChatbotId,
    which: DatedErasure,
    onErased: (chats: number) => void,
  ) => Verb<void>;
  /** All chats with their entries, or those of one user, in order of ids and of one snapshot. */
  readonly records: (
    chatbot: ChatbotId,
    userRef: string | null,
  ) => Stream.Stream<ArchiveRecord, StorageUnavailable>;
  /** At least the entries that `hasFeedback` selects, in descending order of ids; the core leaves out all others. */
  readonly feedback: (
    chatbot: ChatbotId,
    since: Date,
    kind: FeedbackKind,
  ) => Stream.Stream<EntryRow, StorageUnavailable>;
}
