/**
 * Port for operators: which chatbots and keys there are. Every change is written together with its
 * lines in the audit, and what is so already is neither written nor noted.
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
  WorkspaceNotFound,
  WorkspaceTaken,
} from "../model/Errors.ts";

/** A chatbot to be. Workspace and name, compared code point by code point, identify it. */
export interface NewChatbot {
  readonly workspaceName: string;
  readonly name: string;
  readonly description: string;
  readonly settings: ChatbotSettings;
  readonly keys: ReadonlyArray<KeyRecord>;
}

/** What is not named stays as it is. */
export interface ChatbotChange {
  readonly workspaceName?: string;
  readonly name?: string;
  readonly description?: string;
  readonly settings?: Partial<ChatbotSettings>;
}

/** What is not named stays as it is. */
export type KeyChange = Partial<Pick<KeyRecord, "name" | "scopes" | "expiresAt">>;

/** The key that replaces another, of which it has the name and the scopes. */
export type Replacement = Pick<KeyRecord, "id" | "hash" | "expiresAt">;

export interface RegisteredChatbot {
  readonly chatbot: Chatbot;
  /** Revoked and expired ones too, oldest first. */
  readonly keys: ReadonlyArray<RegisteredKey>;
}

/** What was so far of a key that was replaced, and when it ends. */
export type Replaced = Pick<KeyRecord, "name" | "scopes"> & { readonly expiresAt: Date };

/**
 * One line of the append-only audit. A chatbot that is made with keys has its own line before theirs, and a key that
 * replaces another before that of the other's end.
 */
export interface AuditRecord {
  readonly time: Date;
  readonly actor: string;
  readonly chatbot: number;
  readonly action:
    | "create"
    | "change"
    | "delete"
    | "add-key"
    | "change-key"
    | "revoke-key"
    | "erase"
    | "export"
    | "import";
  /**
   * `create`: the chatbot's name. `change`: its {@link changedFields}, as in `description, model`. `add-key` and
   * `revoke-key`: the key's id. `change-key`: that, and its changed fields, as in `4gT…: expiresAt, scopes`. `delete`: the
   * chatbot's name. `erase`: `erasureDetail`. `export`: empty. `import`: how many chats, as in `3 chats`.
   */
  readonly detail: string;
}

export class ChatbotRegistry extends Context.Service<
  ChatbotRegistry,
  {
    /** Every chatbot with its keys, ascending by id. */
    readonly list: Effect.Effect<ReadonlyArray<RegisteredChatbot>, StorageUnavailable>;
    /** Makes a chatbot with its keys. That its name is taken is told before that a key is. */
    readonly create: (
      chatbot: NewChatbot,
      actor: string,
    ) => Effect.Effect<Chatbot, ChatbotTaken | KeyTaken | StorageUnavailable>;
    /** Changes a chatbot; changes of different fields that come together all count. */
    readonly change: (
      chatbot: number,
      change: ChatbotChange,
      actor: string,
    ) => Effect.Effect<Chatbot, ChatbotNotFound | ChatbotTaken | StorageUnavailable>;
    /**
     * Moves every chatbot of a workspace to a workspace of another name, or none of them. Of two renames that meet, one
     * comes after the other. Without `merge` no chatbot may be in the new workspace.
     */
    readonly renameWorkspace: (
      from: string,
      to: string,
      options: { readonly merge: boolean },
      actor: string,
    ) => Effect.Effect<
      void,
      WorkspaceNotFound | WorkspaceTaken | ChatbotTaken | StorageUnavailable
    >;
    /** Deletes a chatbot, its keys and the chats that it still has. Its lines of the audit stay. */
    readonly delete: (
      chatbot: number,
      actor: string,
    ) => Effect.Effect<void, ChatbotNotFound | StorageUnavailable>;
    /** That there is no such chatbot is told before that the key's id is taken, by whichever chatbot. */
    readonly addKey: (
      chatbot: number,
      key: KeyRecord,
      actor: string,
    ) => Effect.Effect<void, ChatbotNotFound | KeyTaken | StorageUnavailable>;
    /** Changes a key that was not revoked. */
    readonly changeKey: (
      chatbot: number,
      keyId: string,
      change: KeyChange,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /**
     * Adds the replacement of a key that was not revoked, and gives that an end, or keeps an earlier one. That there is
     * no such key is told before that the replacement's id is taken.
     */
    readonly replaceKey: (
      chatbot: number,
      keyId: string,
      replacement: Replacement,
      end: Date,
      actor: string,
    ) => Effect.Effect<Replaced, KeyNotFound | KeyTaken | StorageUnavailable>;
    /** Ends a key that was not revoked, for ever. */
    readonly revokeKey: (
      chatbot: number,
      keyId: string,
      actor: string,
    ) => Effect.Effect<void, KeyNotFound | StorageUnavailable>;
    /** What was changed, newest first, at most `limit` lines. Of writes that meet, either may be the newer. */
    readonly audit: (
      limit: number,
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, StorageUnavailable>;
  }
>()("@parley/core/ChatbotRegistry") {}

/** A field that a change changes. */
export interface FieldChange {
  readonly field: string;
  readonly before: unknown;
  readonly after: unknown;
}

/**
 * What a change changes, in the order of the fields' names; those of a chatbot's settings stand beside its
 * own.
 */
export const fieldChanges = (
  before: Chatbot | KeyRecord,
  change: ChatbotChange | KeyChange,
): ReadonlyArray<FieldChange> => {
  const known: Readonly<Record<string, unknown>> = flat(before);
  return Object.entries(flat(change))
    .filter(([field, value]) => JSON.stringify(value) !== JSON.stringify(known[field]))
    .map(([field, after]) => ({ field, before: known[field], after }))
    .toSorted((a, b) => (a.field < b.field ? -1 : 1));
};

/** The names of the fields that a change changes, in their order. */
export const changedFields = (before: Chatbot | KeyRecord, change: ChatbotChange | KeyChange) =>
  fieldChanges(before, change).map(({ field }) => field);

const flat = (from: object) => {
  const { settings, ...rest } = from as { readonly settings?: object };
  return { ...rest, ...settings };
};
