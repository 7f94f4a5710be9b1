/**
 * Port: turns. An ask takes the turn of its chat, is answered, and appends its entry. Until that turn ends or its lease
 * expires, no other ask can take the turn of the chat. No method waits for another ask's answer: the service `Asking`
 * waits for turns and renews them. `store/Turns.ts` has the rules for every case.
 */
import { Context, type Effect } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry, NewEntry } from "../model/Entry.ts";
import type {
  AnswerStopped,
  ChatbotNotFound,
  ChatNotFound,
  Overloaded,
  IdempotencyKeyReused,
  StorageUnavailable,
  TurnLost,
} from "../model/Errors.ts";
import type { IdempotencyKey } from "../model/IdempotencyKey.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";

/** How long the lease of a turn lasts, in milliseconds on the store's clock. Each renewal restarts the lease. */
export const turnLease = 10_000;

/**
 * How long the next turn of a chat is reserved for the instance that has waited longest, in milliseconds from the end
 * of the previous turn.
 */
export const turnPrecedence = 2_000;

/** The maximum number of entries in a turn's `newest`, and in a result of `earlier`. */
export const turnEntries = 20;

/** The right to append the next entry to a chat. */
export interface Turn {
  /** Unique across all turns, including past ones. */
  readonly id: string;
  readonly chatbot: ChatbotId;
  /** `null` if the append creates the chat. */
  readonly chatId: ChatId | null;
  readonly idempotencyKey: IdempotencyKey | null;
  /** The chat; `null` if the append creates it. */
  readonly chat: Chat | null;
  /**
   * The `userRef` of the visitor who sent the ask, and of the chat if the append creates it. `null` or absent if no
   * visitor sent the ask; a new chat then has no `userRef`.
   */
  readonly visitor?: string | null;
  /** The chat's newest {@link turnEntries} entries, newest first, or all of its entries if it has fewer. */
  readonly newest: ReadonlyArray<Entry>;
}

/** What an API key's asks have cost so far today (in UTC, on the store's clock). */
export interface Spending {
  readonly tokens: number;
  /** The time left until the day ends, in milliseconds. */
  readonly endsInMillis: number;
}

/** An ask that waits in this process for its turn, and whose key the store does not know yet. */
export interface WaitingAsk extends IdempotencyKey {
  readonly chatId: ChatId | null;
}

/** The outcome of `stop`. */
export type StopResult = Extract<TakeResult, { readonly _tag: "AlreadyAnswered" | "Stopped" }>;

/** The outcome of `take`. */
export type TakeResult =
  | { readonly _tag: "TurnTaken"; readonly turn: Turn }
  /**
   * Another turn holds the idempotency key (`key`) or the chat (`chat`), or the chat is reserved for another instance
   * (`chat`). The lease or the reservation ends in `forMillis` milliseconds, a number above 0, unless that turn is
   * renewed. A store that cannot currently lock the chat may also return `Held` by `chat`; `forMillis` is then the time
   * to wait before trying again.
   */
  | { readonly _tag: "Held"; readonly forMillis: number; readonly by: "chat" | "key" }
  /**
   * An earlier request with the same idempotency key was answered with this entry, in the turn with this id. The entry
   * has its metadata and its feedback.
   */
  | { readonly _tag: "AlreadyAnswered"; readonly entry: Entry; readonly turnId: string }
  /** A client has stopped the request with this idempotency key. */
  | { readonly _tag: "Stopped" };

/**
 * The turns in which chats are answered. Several instances of a store may share its data: each time its layer is built,
 * for example once per process, there is one more. Every instance can renew and release the turns of other instances,
 * and append their entries.
 */
export class TurnStore extends Context.Service<
  TurnStore,
  {
    /**
     * Takes the turn of a chat and of an idempotency key, for one lease. Checks the following, in order:
     *
     * 1. If a request with a different fingerprint has used or is using the key, fails with `IdempotencyKeyReused`.
     * 2. If a client has stopped the request, returns `Stopped`; if it has already been answered, `AlreadyAnswered`.
     * 3. If the chat does not exist or, with a `visitor`, has another `userRef` or none, fails with `ChatNotFound`,
     *    without taking a lock; both cases take the same time. If the chatbot is not registered, a call with a key but
     *    no chat fails with `ChatbotNotFound`; with neither a key nor a chat, only the append fails.
     * 4. If a turn holds the key, returns `Held` by `key`.
     * 5. If a turn holds the chat, or the chat is reserved for another instance, returns `Held` by `chat`, and adds
     *    this instance to the chat's queue, in which the instance that has waited longest is next. A store that cannot
     *    currently lock the chat may return the same result and leave the queue as it is.
     *
     * A turn whose lease has expired stays valid until another request takes its chat or key, then loses both for good.
     */
    readonly take: (
      chatbot: ChatbotId,
      chatId: ChatId | null,
      idempotencyKey: IdempotencyKey | null,
      visitor?: string | null,
    ) => Effect.Effect<
      TakeResult,
      ChatbotNotFound | ChatNotFound | IdempotencyKeyReused | Overloaded | StorageUnavailable
    >;
    /**
     * Returns the chat's newest {@link turnEntries} entries with ids below `before`, newest first, or all such entries
     * if there are fewer. Returns no entries if the chat has been erased.
     */
    readonly earlier: (
      turn: Turn,
      before: number,
    ) => Effect.Effect<ReadonlyArray<Entry>, StorageUnavailable>;
    /**
     * Renews the lease. Fails with `ChatNotFound` if the chat has been erased, which is checked first, or with
     * `AnswerStopped` if a client has stopped the ask. Returns `false` if another request has taken the chat or the key,
     * or the turn has ended; otherwise returns `true`.
     */
    readonly renew: (
      turn: Turn,
    ) => Effect.Effect<boolean, AnswerStopped | ChatNotFound | StorageUnavailable>;
    /**
     * Stores the entry, and the chat if it is new; ends the turn; and records the entry under the turn's idempotency
     * key for 24 hours: all or nothing. Fails with `ChatNotFound` if the chat has been erased, which is checked first;
     * with `AnswerStopped` if a client has stopped the ask; with `TurnLost` if another request has taken the chat or the
     * key, or the turn has ended; or with `ChatbotNotFound` if the chat is new and the chatbot is not registered.
     *
     * Adds the entry's `spentTokens`, if any, to what the API key has spent today.
     */
    readonly append: (
      turn: Turn,
      entry: NewEntry,
    ) => Effect.Effect<
      Entry,
      AnswerStopped | TurnLost | ChatbotNotFound | ChatNotFound | Overloaded | StorageUnavailable
    >;
    /**
     * Stops the ask with this key (as in `IdempotencyKey`): marks the key for 24 hours, so that its turn is lost to an
     * append, and every repetition of the request fails. The mark and an append test the same row, so that exactly one
     * of them wins. Returns the entry instead if the ask has stored it, and `null` if the key is unknown, or belongs to
     * a creation or to a post. With `waiting`, the ask that uses the key is marked even before it has a turn.
     */
    readonly stop: (
      chatbot: ChatbotId,
      key: string,
      waiting: WaitingAsk | null,
    ) => Effect.Effect<StopResult | null, StorageUnavailable>;
    /**
     * Ends the turn without an entry and forgets its key, but leaves alone a chat or key that another request has
     * taken, and a key that a client has stopped. Adds the tokens in `cost` to what the API key has spent today, even if
     * the turn was lost, but not if an append or an earlier release of the turn may already have added them.
     */
    readonly release: (
      turn: Turn,
      cost?: { readonly apiKeyId: string; readonly tokens: number } | null,
    ) => Effect.Effect<void, StorageUnavailable>;
    /** Returns the total that appends and releases have added for an API key today, across all instances. */
    readonly spending: (
      chatbot: ChatbotId,
      apiKeyId: string,
    ) => Effect.Effect<Spending, StorageUnavailable>;
  }
>()("@parley/core/TurnStore") {}
