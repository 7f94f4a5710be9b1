/**
 * Port for operators: which chatbots and keys there are. Every change is written together with its
 * line in the audit.
 */
import { Context, type Effect } from "effect";
import type { Chatbot, ChatbotSettings } from "./Chatbot.ts";
import type { Scope } from "./ChatbotDirectory.ts";
import type { KeyTaken, StorageUnavailable } from "./Errors.ts";

/** A key as it is kept: never its text. */
export interface KeyRecord {
  readonly id: string;
  /** SHA-256 of the whole key's text. */
  readonly hash: Uint8Array;
  readonly name: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expiresAt: Date | null;
}

/** What a chatbot should be. Workspace and name identify it. */
export interface ChatbotDeclaration {
  readonly workspaceName: string;
  readonly name: string;
  readonly description: string;
  readonly settings: ChatbotSettings;
  /** Keys to add or to change, none twice; keys that are not named stay as they are. */
  readonly keys: ReadonlyArray<KeyRecord>;
}

export interface RegisteredChatbot {
  readonly chatbot: Chatbot;
  readonly keys: ReadonlyArray<KeyRecord & { readonly revokedAt: Date | null }>;
}

/** One line of the append-only audit. */
export interface AuditRecord {
  readonly time: Date;
  readonly actor: string;
  readonly chatbot: number;
  readonly action: "create" | "change" | "revoke";
  /** What changed, without secrets. */
  readonly detail: string;
}

export class ChatbotRegistry extends Context.Service<
  ChatbotRegistry,
  {
    /** Every chatbot with its keys, revoked and expired ones too, ascending by id. */
    readonly list: Effect.Effect<ReadonlyArray<RegisteredChatbot>, StorageUnavailable>;
    /**
     * Makes the chatbot what the declaration says; nothing is written when it is so already, or when one
     * of the keys belongs to another chatbot. A revoked key stays revoked.
     */
    readonly save: (
      declaration: ChatbotDeclaration,
      actor: string,
    ) => Effect.Effect<Chatbot, KeyTaken | StorageUnavailable>;
    /** Ends a key at once; `false` when the chatbot has no such key or it was revoked before. */
    readonly revoke: (
      chatbot: number,
      keyId: string,
      actor: string,
    ) => Effect.Effect<boolean, StorageUnavailable>;
    /** Every change, newest first, at most `limit`. */
    readonly audit: (
      limit: number,
    ) => Effect.Effect<ReadonlyArray<AuditRecord>, StorageUnavailable>;
  }
>()("@parley/core/ChatbotRegistry") {}
