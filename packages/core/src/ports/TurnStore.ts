/**
 * Port: turns. An ask takes the turn of its chat, is answered, and appends its entry; no other ask can take that turn
 * until the turn or its lease has ended. No method waits for another ask's answer: the service `Asking` waits for turns
 * and renews them. `docs/library/write-a-store.md` has the rules for every case.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Entry, NewEntry } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  Overloaded,
  IdempotencyKeyReused,
  StorageUnavailable,
  TurnLost,
} from "../model/Errors.ts";
import type { IdempotencyKey } from "../model/IdempotencyKey.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";

/** How long the lease of a turn lasts, in milliseconds of the store's clock. Each renewal starts it anew. */
export const turnLease = 10_000;

/**
 * How long, after a turn has ended, the next turn of the chat is reserved for the instance that has waited longest, in
 * milliseconds.
 */
export const turnPrecedence = 2_000;

/** The greatest number of entries in a turn's `newest`, and in a result of `earlier`. */
export const turnEntries = 20;

/** The right to append the next entry to a chat. */
export interface Turn {
  /** Unique among all turns ever. */
  readonly id: string;
  readonly chatbot: ChatbotId;
  /** `null`: the append creates the chat. */
  readonly chatId: ChatId | null;
  readonly idempotencyKey: IdempotencyKey | null;
  /**
   * The `userRef` of the visitor who sent the ask, for the chat that the append may create. `null` or absent: no visitor
   * sent it, and a new chat has no `userRef`.
   */
  readonly visitor?: string | null;
  /** The chat's {@link turnEntries} newest entries, newest first; fewer only if the chat has no more. */
  readonly newest: ReadonlyArray<Entry>;
}

/** What the asks of an API key have cost today (UTC), by the store's clock. */
export interface Spending {
  readonly tokens: number;
  /** How long the day will still last, in milliseconds. */
  readonly endsInMillis: number;
}

/** The outcome of `take`. */
export type TakeResult =
  /** The turn is taken. */
  | { readonly _tag: "TurnTaken"; readonly turn: Turn }
  /**
   * Another turn holds the idempotency key (`key`) or the chat (`chat`), or the chat's turn is reserved for another
   * instance (`chat`). Unless that turn is renewed, its lease or the reservation ends in `forMillis` milliseconds, a
   * number above 0. A store that cannot lock the chat at the moment may return `Held` by `chat`; `forMillis` is
   * then the time after which to try again.
   */
  | { readonly _tag: "Held"; readonly forMillis: number; readonly by: "chat" | "key" }
  /** An earlier request with the same idempotency key was answered with this entry, in the turn with this id. */
  | { readonly _tag: "AlreadyAnswered"; readonly entry: Entry; readonly turnId: string };

/**
 * An instance of the store is one build of its layer over the data. Every instance can renew and release the turns of
 * the others, and append in them.
 */
export class TurnStore extends Context.Service<
  TurnStore,
  {
    /**
     * Takes the turn of a chat and of an idempotency key, for one lease. Checks in this order:
     *
     * 1. A request with another fingerprint has used the key or is using it: fails with `IdempotencyKeyReused`.
     * 2. The request was answered: returns `AlreadyAnswered`.
     * 3. The chat does not exist or, with a `visitor`, has another `userRef` or none: fails with `ChatNotFound`,
     *    without a lock; both cases take the same time. If the chatbot is not registered, a key without a chat fails
     *    with `ChatbotNotFound`; with neither a key nor a chat, only the append fails.
     * 4. A turn holds the key: returns `Held` by `key`.
     * 5. A turn holds the chat, or the chat is reserved for another instance: returns `Held` by `chat`, and puts this
     *    instance into the chat's queue, in which the instance that has waited longest is next. A store that cannot
     *    lock the chat at the moment may return the same, and leave the queue as it is.
     *
     * A turn whose lease ended stays valid until another request takes its chat or key; then it loses both for good.
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
     * The chat's {@link turnEntries} newest entries with ids below `before`, newest first; fewer only if the chat has
     * no more. Empty if the chat was erased.
     */
    readonly earlier: (
      turn: Turn,
      before: number,
    ) => Effect.Effect<ReadonlyArray<Entry>, StorageUnavailable>;
    /**
     * Renews the lease. Fails with `ChatNotFound` if the chat was erased, which is checked first. Returns `false` if
     * another request took the chat or the key, or the turn has ended; else `true`.
     */
    readonly renew: (turn: Turn) => Effect.Effect<boolean, ChatNotFound | StorageUnavailable>;
    /**
     * Stores the entry, and the chat if it is new; ends the turn; and records the entry under the turn's idempotency
     * key for 24 hours: all of it or nothing. Fails with `ChatNotFound` if the chat was erased, which is checked first;
     * with `TurnLost` if another request took the chat or the key, or the turn has ended; with `ChatbotNotFound` if the
     * chat is new and the chatbot is not registered.
     *
     * Adds `spentTokens`, if any, to what the API key has spent today.
     */
    readonly append: (
      turn: Turn,
      entry: NewEntry,
    ) => Effect.Effect<
      Entry,
      TurnLost | ChatbotNotFound | ChatNotFound | Overloaded | StorageUnavailable
    >;
    /**
     * Ends the turn without an entry and forgets its key. Leaves alone a chat or key that another request took. Adds
     * the tokens of `cost` to what the API key has spent today, even if the turn was lost, but not if an append or an
     * earlier release of the turn may already have added them.
     */
    readonly release: (
      turn: Turn,
      cost?: { readonly apiKeyId: string; readonly tokens: number } | null,
    ) => Effect.Effect<void, StorageUnavailable>;
    /** What appends and releases have added for an API key today: the sum over all instances. */
    readonly spending: (
      chatbot: ChatbotId,
      apiKeyId: string,
    ) => Effect.Effect<Spending, StorageUnavailable>;
    /**
     * Notifications that the turn of a chat may be free; `null`: of any chat. Some may be missing, and the stream may
     * end: asks also poll, by default once a second. `take` and `renew` send none.
     */
    readonly freedTurns: Stream.Stream<{
      readonly chatbot: ChatbotId;
      readonly chatId: ChatId;
    } | null>;
  }
>()("@parley/core/TurnStore") {}
