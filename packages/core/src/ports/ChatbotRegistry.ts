/**
 * Port for operators: chatbots and their keys. A change and its entries in the audit log are written together. A change
 * that leaves every value as it is writes nothing.
 */
import { Context, type Effect } from "effect";
import type { KeyRecord, RegisteredKey } from "../model/ApiKey.ts";
import type { Chatbot, ChatbotSettings } from "../model/Chatbot.ts";
import type {
  ChatbotNotFound,
  ChatbotTaken,
  KeyNotFound,
  KeyTaken,
  StorageUnavailable,
} from "../model/Errors.ts";
import type { ChatbotId } from "../model/Ids.ts";

/** A chatbot to create. No two chatbots have the same workspace and name, compared by code points. */
export type NewChatbot = Omit<Chatbot, "id"> & { readonly keys: ReadonlyArray<KeyRecord> };

/** The fields of a chatbot to change. Absent fields stay as they are. */
export type ChatbotChange = Partial<Omit<Chatbot, "id" | "settings">> & {
  readonly settings?: Partial<ChatbotSettings>;
};

/** The fields of a key to change. Absent fields stay as they are. */
export type KeyChange = Partial<Omit<KeyRecord, "id" | "hash">>;

/** A chatbot and its keys. */
export interface RegisteredChatbot {
  readonly chatbot: Chatbot;
  /** Oldest first, revoked and expired keys included. */
  readonly keys: ReadonlyArray<RegisteredKey>;
}

/**
 * An entry of the audit log, which is append-only. The entry of a new chatbot precedes those of its keys.
 */
export interface AuditRecord {
  readonly time: Date;
  readonly actor: string;
  readonly chatbot: ChatbotId;
  readonly action:
    | "create"
    | "change"
    | "delete"
    | "add-key"
    | "change-key"
    | "revoke-key"
    | "erase"
    | "export"
    | "import"
    | "read";
  /**
   * `create` and `delete`: the chatbot's name. `change`: its {@link changedFields}, as in `description, model`.
   * `add-key` and `revoke-key`: the key's id. `change-key`: the key's id and its changed fields, as in
   * `4gT…: expiresAt, scopes`. `erase`: `erasureDetail`. `export`: `exportDetail`. `import`: `importDetail`. `read`:
   * what was read, without user text.
   */
  readonly detail: string;
}

/** Keeps chatbots and their keys. */
export class ChatbotRegistry extends Context.Service<
  ChatbotRegistry,
  {
    /** Every chatbot with its keys, in ascending order of id. */
    readonly list: Effect.Effect<ReadonlyArray<RegisteredChatbot>, StorageUnavailable>;
    /** Creates a chatbot with its keys, all or nothing. The chatbot's name is checked before the ids of the keys. */
    readonly create: (
      chatbot: NewChatbot,
      actor: string,
    ) => Effect.Effect<Chatbot, ChatbotTaken | KeyTaken | StorageUnavailable>;
    /** Changes a chatbot. Concurrent changes of different fields all take effect. */
    readonly change: (
      chatbot: ChatbotId,
      change: ChatbotChange,
      actor: string,
    ) => Effect.Effect<Chatbot, ChatbotNotFound | ChatbotTaken | StorageUnavailable>;
    /** Deletes a chatbot with its keys, chats, turns and idempotency keys. Its entries in the audit log stay. */
    readonly delete: (
      chatbot: ChatbotId,
      actor: string,
    ) => Effect.Effect<void, ChatbotNotFound | StorageUnavailable>;
    /** Adds a key. The chatbot is checked first, then the key's id, which must be unused in all chatbots. */
    readonly addKey: (
      chatbot: ChatbotId,
      key: KeyRecord,
      actor: string,
    ) => Effect.Effect<void, ChatbotNotFound | KeyTaken | StorageUnavailable>;
    /** Changes a key; fails with `KeyNotFound` if it is unknown or revoked. */
    readonly changeKey: (
      chatbot: ChatbotId,
      keyId: string,
      change: KeyChange,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /** Revokes a key for good; fails with `KeyNotFound` if it is unknown or already revoked. */
    readonly revokeKey: (
      chatbot: ChatbotId,
      keyId: string,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /** Records in the audit log that an operator reads users' texts. */
    readonly recordRead: (
      chatbot: ChatbotId,
      detail: string,
      actor: string,
    ) => Effect.Effect<void, StorageUnavailable>;
    /** The current time by the store's clock, which decides when keys expire and which chats are idle. */
    readonly now: Effect.Effect<Date, StorageUnavailable>;
    /** The audit log's newest `limit` entries, newest first. Those of concurrent writes may have any order. */
    readonly audit: (
      limit: number,
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, StorageUnavailable>;
  }
>()("@parley/core/ChatbotRegistry") {}

/** A field whose value changes. */
export interface FieldChange {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** The fields whose values change, sorted by name, including those of a chatbot's settings. */
export const fieldChanges = (
  before: Chatbot | KeyRecord,
  change: ChatbotChange | KeyChange,
): ReadonlyArray<FieldChange> => {
  const oldValues: Readonly<Record<string, unknown>> = flat(before);
  return Object.entries(flat(change))
    .filter(([field, value]) => JSON.stringify(value) !== JSON.stringify(oldValues[field]))
    .map(([field, after]) => ({ field, before: oldValues[field], after }))
    .toSorted((a, b) => (a.field < b.field ? -1 : 1));
};

/** The names of the fields whose values change, sorted. */
export const changedFields = (before: Chatbot | KeyRecord, change: ChatbotChange | KeyChange) =>
  fieldChanges(before, change).map(({ field }) => field);

const flat = (from: object) => {
  const { settings, ...rest } = from as { readonly settings?: object };
  return { ...rest, ...settings };
};
