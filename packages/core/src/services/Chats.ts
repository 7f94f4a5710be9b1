/**
 * Creating chats and reading them (sections 4.2 to 4.4).
 */
import { Context, Effect, Layer } from "effect";
import { Digest } from "effect/crypto";
import type { Chat, NewChat } from "../model/Chat.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatStore, type Created } from "../ports/ChatStore.ts";
import type { Entry } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  Overloaded,
  IdempotencyKeyReused,
  StorageUnavailable,
} from "../model/Errors.ts";
import type { ChatQuery, EntryQuery, Page } from "../model/ListQuery.ts";
import { toIdempotencyKey, type IdempotencyKeyText } from "../model/IdempotencyKey.ts";

export class Chats extends Context.Service<
  Chats,
  {
    /**
     * Creates a chat, and its hello entry if the chatbot has a hello message. With an idempotency key, the same
     * request returns the same chat for 24 hours, and another request fails with `IdempotencyKeyReused`.
     */
    readonly create: (
      chatbot: Chatbot,
      chat: NewChat,
      key?: IdempotencyKeyText | null,
    ) => Effect.Effect<
      Created,
      ChatbotNotFound | IdempotencyKeyReused | Overloaded | StorageUnavailable
    >;
    /** A page of the chatbot's chats, and the number of chats that match. */
    readonly list: (
      chatbot: Chatbot,
      query: ChatQuery,
    ) => Effect.Effect<Page<Chat>, Overloaded | StorageUnavailable>;
    /** A page of the chat's entries, and the number of entries that match. */
    readonly history: (
      chatbot: Chatbot,
      chatId: number,
      query: EntryQuery,
    ) => Effect.Effect<Page<Entry>, ChatNotFound | Overloaded | StorageUnavailable>;
  }
>()("@parley/core/Chats") {
  static readonly layer: Layer.Layer<Chats, never, ChatStore | Digest.Digest> = Layer.effect(
    Chats,
    Effect.gen(function* () {
      const store = yield* ChatStore;
      const digest = yield* Digest.Digest;

      return Chats.of({
        create: (chatbot, { name = null, userRef = null }, key = null) => {
          const chat = { name, userRef, helloMessage: chatbot.settings.helloMessage || null };
          return toIdempotencyKey(digest, key, "chats", [name, userRef]).pipe(
            Effect.flatMap((request) => store.createChat(chatbot.id, chat, request)),
            // A client that hangs up must not cancel a write in progress.
            Effect.uninterruptible,
          );
        },
        list: (chatbot, query) => store.listChats(chatbot.id, query),
        history: (chatbot, chatId, query) => store.listEntries(chatbot.id, chatId, query),
      });
    }),
  );
}
