/**
 * Port for operators: manages chatbots and their keys. Each change is written atomically with its entries in the audit
 * log. A change that leaves every value as it is writes nothing.
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

/** The fields to change in a chatbot. Absent fields stay as they are. */
export type ChatbotChange = Partial<Omit<Chatbot, "id" | "settings">> & {
  readonly settings?: Partial<ChatbotSettings>;
};

/** The fields to change in a key. Absent fields stay as they are. */
export type KeyChange = Partial<Omit<KeyRecord, "id" | "hash">>;

/** A chatbot and its keys. */
export interface RegisteredChatbot {
  readonly chatbot: Chatbot;
  /** Oldest first, revoked and expired keys included. */
  readonly keys: ReadonlyArray<RegisteredKey>;
}

/** What expires by itself. */
export interface Expiries {
  /** The chatbots with `retentionDays`, in ascending order. */
  readonly chatbots: ReadonlyArray<ChatbotId>;
  /** When the next unrevoked key expires; `null` if none does. */
  readonly nextKey: Date | null;
}

/** An entry in the audit log, to which Parley only adds. The entry for a new chatbot precedes the entries for its keys. */
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
    | "post"
    | "read";
  /**
   * For `create` and `delete`, the chatbot's name; for `change`, its {@link changedFields}, as in `description, model`;
   * for `add-key` and `revoke-key`, the key's id; for `change-key`, the key's id and its changed fields, as in
   * `4gT…: expiresAt, scopes`; for `erase`, `export` and `import`, the result of `erasureDetail`, `exportDetail` or
   * `importDetail`; for `post` and `read`, what was posted or read, without user text.
   */
  readonly detail: string;
}

/** Manages chatbots and their keys. */
export class ChatbotRegistry extends Context.Service<
  ChatbotRegistry,
  {
    /** Every chatbot with its keys, in ascending order of id. */
    readonly list: Effect.Effect<ReadonlyArray<RegisteredChatbot>, StorageUnavailable>;
    /** What expires, without the chatbots and keys themselves. */
    readonly expiries: Effect.Effect<Expiries, StorageUnavailable>;
    /** Reads one chatbot with its keys. Waits for no change. */
    readonly get: (
      chatbot: ChatbotId,
    ) => Effect.Effect<RegisteredChatbot, ChatbotNotFound | StorageUnavailable>;
    /** Creates a chatbot and its keys, all or nothing. The chatbot's name is checked before the key ids. */
    readonly create: (
      chatbot: NewChatbot,
      actor: string,
    ) => Effect.Effect<Chatbot, ChatbotTaken | KeyTaken | StorageUnavailable>;
    /** Changes a chatbot. Concurrent changes to different fields all take effect. */
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
    /** Adds a key. Checks the chatbot first, then the key's id, which must be unique across all chatbots. */
    readonly addKey: (
      chatbot: ChatbotId,
      key: KeyRecord,
      actor: string,
    ) => Effect.Effect<void, ChatbotNotFound | KeyTaken | StorageUnavailable>;
    /** Changes a key; fails with `KeyNotFound` if the key is unknown or revoked. */
    readonly changeKey: (
      chatbot: ChatbotId,
      keyId: string,
      change: KeyChange,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /** Revokes a key for good; fails with `KeyNotFound` if the key is unknown or already revoked. */
    readonly revokeKey: (
      chatbot: ChatbotId,
      keyId: string,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /** Records in the audit log that an operator reads user data, or has posted an entry. */
    readonly record: (
      chatbot: ChatbotId,
      action: "post" | "read",
      detail: string,
      actor: string,
    ) => Effect.Effect<void, StorageUnavailable>;
    /** The current time on the store's clock, which determines when keys expire and which chats are idle. */
    readonly now: Effect.Effect<Date, StorageUnavailable>;
    /**
     * Returns the newest `limit` entries in the audit log, newest first. Concurrent writes may appear in any order. With a
     * `userRef`, returns at least all entries that contain its digest; see `Administration.audit`.
     */
    readonly audit: (
      limit: number,
      userRef?: string,
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, StorageUnavailable>;
  }
>()("@parley/core/ChatbotRegistry") {}

/** A field whose value changes. */
export interface FieldChange {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

/** Returns the fields whose values change, sorted by name, including the fields of a chatbot's settings. */
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

/** Returns the names of the fields whose values change, sorted. */
export const changedFields = (before: Chatbot | KeyRecord, change: ChatbotChange | KeyChange) =>
  fieldChanges(before, change).map(({ field }) => field);

const flat = (from: object) => {
  const { settings, ...rest } = from as { readonly settings?: object };
  return { ...rest, ...settings };
};
