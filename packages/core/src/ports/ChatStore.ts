/**
 * Port: creates chats, and lists them and their entries.
 */
import { Context, type Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry, Feedback } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  EntryNotFound,
  Overloaded,
  IdempotencyKeyReused,
  StorageUnavailable,
} from "../model/Errors.ts";
import type { IdempotencyKey } from "../model/IdempotencyKey.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";
import type { ChatQuery, EntryQuery, Page } from "../model/ListQuery.ts";

/** A chat to create. */
export interface ChatToCreate extends Pick<Chat, "name" | "userRef"> {
  /** The answer in the chat's hello entry; `null` for a chat without a hello entry. */
  readonly helloMessage: string | null;
}

/** The result of creating a chat. */
export interface CreateResult {
  readonly chat: Chat;
  /** The hello entry, if this call has stored one. */
  readonly helloEntry: Entry | null;
  /** Whether an earlier request with the same idempotency key created the chat. */
  readonly replayed: boolean;
}

/** An unregistered chatbot has no chats: its list of chats is empty, and creating a chat fails. */
export class ChatStore extends Context.Service<
  ChatStore,
  {
    /**
     * Stores a chat and its hello entry, if any, atomically. For 24 hours, repeating the request with the same key
     * returns that chat, and a different request with the key fails with `IdempotencyKeyReused`.
     *
     * Chat ids ascend in order of creation within a chatbot, and entry ids within a chat. Creation times, which are
     * whole milliseconds, never decrease as the ids increase. Within a chatbot, no chat id and no entry id is ever
     * reused, even after an erasure.
     */
    readonly createChat: (
      chatbot: ChatbotId,
      chat: ChatToCreate,
      idempotencyKey: IdempotencyKey | null,
    ) => Effect.Effect<
      CreateResult,
      ChatbotNotFound | IdempotencyKeyReused | Overloaded | StorageUnavailable
    >;
    /** Returns a page of the chatbot's chats and the total number that match, both from one snapshot. */
    readonly listChats: (
      chatbot: ChatbotId,
      query: ChatQuery,
    ) => Effect.Effect<Page<Chat>, Overloaded | StorageUnavailable>;
    /**
     * Returns a page of the chat's entries and the total number that match, both from one snapshot. With a `visitor`, a
     * chat with another `userRef` or none counts as missing: the call fails in the same way and takes as long.
     */
    readonly listEntries: (
      chatbot: ChatbotId,
      chatId: ChatId,
      query: EntryQuery,
      visitor?: string | null,
    ) => Effect.Effect<Page<Entry>, ChatNotFound | Overloaded | StorageUnavailable>;
    /** Gives the chat another name, or none. A `visitor` is as in `listEntries`. */
    readonly renameChat: (
      chatbot: ChatbotId,
      chatId: ChatId,
      name: string | null,
      visitor?: string | null,
    ) => Effect.Effect<Chat, ChatNotFound | StorageUnavailable>;
    /**
     * Changes the given fields of an entry's feedback, and returns the entry with its metadata and its feedback. A
     * `visitor` is as in `listEntries`.
     */
    readonly rateEntry: (
      chatbot: ChatbotId,
      chatId: ChatId,
      entryId: number,
      feedback: Partial<Feedback>,
      visitor?: string | null,
    ) => Effect.Effect<Entry, ChatNotFound | EntryNotFound | StorageUnavailable>;
  }
>()("@parley/core/ChatStore") {}
