/**
 * Port: creates chats, and lists them and their entries.
 */
import { Context, type Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  Overloaded,
  IdempotencyKeyReused,
  StorageUnavailable,
} from "../model/Errors.ts";
import type { IdempotencyKey } from "../model/IdempotencyKey.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";
import type { ChatQuery, EntryQuery, Page } from "../model/ListQuery.ts";

/** A chat to create. */
export interface ChatToCreate extends Pick<Chat, "name" | "userRef"> {
  /** The answer of the chat's hello entry; `null`: the chat has no hello entry. */
  readonly helloMessage: string | null;
}

/** The result of a creation. */
export interface CreateResult {
  readonly chat: Chat;
  /** Whether an earlier request with the same idempotency key created the chat. */
  readonly replayed: boolean;
}

/** An unregistered chatbot has no chats: its list of chats is empty, and creating one fails. */
export class ChatStore extends Context.Service<
  ChatStore,
  {
    /**
     * Stores a chat and its hello entry, both or neither. For 24 hours, the same request with the same key returns
     * that chat, and a different request with the key fails with `IdempotencyKeyReused`.
     *
     * Ids of chats ascend in order of creation within a chatbot, and ids of entries within a chat. In the order of ids,
     * the times of creation, which are whole milliseconds, never descend. No two chats and no two entries of a chatbot
     * ever have the same id, even after an erasure.
     */
    readonly createChat: (
      chatbot: ChatbotId,
      chat: ChatToCreate,
      idempotencyKey: IdempotencyKey | null,
    ) => Effect.Effect<
      CreateResult,
      ChatbotNotFound | IdempotencyKeyReused | Overloaded | StorageUnavailable
    >;
    /** A page of the chatbot's chats, and the number of chats that match, both from one snapshot. */
    readonly listChats: (
      chatbot: ChatbotId,
      query: ChatQuery,
    ) => Effect.Effect<Page<Chat>, Overloaded | StorageUnavailable>;
    /**
     * A page of the chat's entries, and the number of entries that match, both from one snapshot. With a `visitor`, the
     * call fails for a chat with another `userRef` or none as it does for a missing chat, and takes as long.
     */
    readonly listEntries: (
      chatbot: ChatbotId,
      chatId: ChatId,
      query: EntryQuery,
      visitor?: string | null,
    ) => Effect.Effect<Page<Entry>, ChatNotFound | Overloaded | StorageUnavailable>;
  }
>()("@parley/core/ChatStore") {}
