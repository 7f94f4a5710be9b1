/**
 * Port: where chats are kept, created and listed.
 */
import { Context, type Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  Overloaded,
  RetryKeyReused,
  StorageUnavailable,
} from "../model/Errors.ts";
import type { ChatQuery, EntryQuery, Page } from "../model/ListQuery.ts";
import type { RetryKey } from "../model/IdempotencyKey.ts";

/** A chat as the store gets it. */
export interface ChatToCreate {
  readonly name: string | null;
  readonly userRef: string | null;
  /** The answer of the entry to store with it, or `null` for a chat without entries. */
  readonly helloMessage: string | null;
}

export interface Created {
  readonly chat: Chat;
  /** Whether an earlier request with the same retry key made it. */
  readonly replayed: boolean;
}

/** A chatbot that is not registered has no chats: its lists are empty, and creating one fails. */
export class ChatStore extends Context.Service<
  ChatStore,
  {
    /**
     * Stores a chat and its hello entry, both or none; a known retry key gives the chat it made, for 24
     * hours from then on. Ids of chats ascend in order of creation within a chatbot, those of entries
     * within a chat; no two of a chatbot are equal, even after an erasure. Times are whole milliseconds of the
     * store's clock: no chat is older than the one made before it in its chatbot, even if that was erased, and no
     * entry older than the one before it in its chat, or than the chat.
     */
    readonly createChat: (
      chatbot: number,
      chat: ChatToCreate,
      retryKey: RetryKey | null,
    ) => Effect.Effect<Created, ChatbotNotFound | RetryKeyReused | Overloaded | StorageUnavailable>;
    /** One page of the chatbot's chats, and how many match, of one snapshot. */
    readonly listChats: (
      chatbot: number,
      query: ChatQuery,
    ) => Effect.Effect<Page<Chat>, Overloaded | StorageUnavailable>;
    /** One page of a chat's entries, and how many match, of one snapshot. */
    readonly listEntries: (
      chatbot: number,
      chat: number,
      query: EntryQuery,
    ) => Effect.Effect<Page<Entry>, ChatNotFound | Overloaded | StorageUnavailable>;
  }
>()("@parley/core/ChatStore") {}
