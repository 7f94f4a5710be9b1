/**
 * Port: the right to answer next in a chat. It never waits: who does not get a turn is told until
 * when it is held, and waiting, fairness and renewal are the business of `Asking`.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Entry, NewEntry } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  Overloaded,
  RetryKeyReused,
  StorageUnavailable,
  TurnLost,
} from "../model/Errors.ts";
import type { RetryKey } from "../model/IdempotencyKey.ts";

/** How long a turn is held without being renewed, in milliseconds, by the store's clock. */
export const turnLease = 10_000;

/** How long a turn that ended is kept for who waited longest, in milliseconds. */
export const turnPrecedence = 2_000;

/** How many of the newest entries a turn brings along. */
export const turnEntries = 20;

/** The right to append the next entry to a chat. */
export interface Turn {
  /** Names this turn, and no other ever. */
  readonly id: string;
  readonly chatbot: number;
  /** `null`: the chat is made by the append. */
  readonly chat: number | null;
  readonly retryKey: RetryKey | null;
  /** The chat's {@link turnEntries} newest entries, newest first; fewer only where there are no more. */
  readonly newest: ReadonlyArray<Entry>;
}

/** What came of asking for a turn. */
export type Taken =
  | { readonly _tag: "Turn"; readonly turn: Turn }
  /**
   * Another turn is held, of the chat or of the retry key, at the latest this many ms (above 0) from now; or it
   * is another instance's time to go. `freed` hints at the end of a chat's turn only.
   */
  | { readonly _tag: "Held"; readonly forMillis: number; readonly by: "chat" | "key" }
  /** The retry key's request was answered before, in the turn of that name. */
  | { readonly _tag: "Done"; readonly entry: Entry; readonly turn: string };

export class TurnStore extends Context.Service<
  TurnStore,
  {
    /**
     * Takes the turn of a chat, or of one to be made, and settles the retry key. With a retry key and no chat it fails
     * if the chatbot is not registered; without either that shows at the append. What is looked at first:
     * the key used for another request (also while that one runs), the key's entry, whether there is the
     * chat, then whether the key is held, and then the chat. A key whose request ended without a trace is free again,
     * for whatever request, as one is whose turn's lease ran out.
     *
     * A turn is not of the instance that gave it: another may renew, append and release it. One whose lease ran out
     * stays its owner's until another takes it, or it is forgotten with its key, a day after it was taken at the
     * earliest; whoever takes it by the chat or by the key has both, and its owner never gets either back. A turn
     * without chat and key holds nothing: it can always be renewed and appended.
     *
     * An instance is one layer built over the data. Of several instances that were told `Held` by a chat (those that a
     * key holds have no place), the one that waited longest goes first, if it asks again within {@link turnPrecedence} of
     * the turn's end (of its lease, if it just ran out); after that it has lost its place.
     */
    readonly take: (
      chatbot: number,
      chat: number | null,
      retryKey: RetryKey | null,
    ) => Effect.Effect<
      Taken,
      ChatbotNotFound | ChatNotFound | RetryKeyReused | Overloaded | StorageUnavailable
    >;
    /**
     * The {@link turnEntries} newest entries with ids below `before`, newest first; fewer only where there are no more,
     * none of a chat that is gone.
     */
    readonly earlier: (
      turn: Turn,
      before: number,
    ) => Effect.Effect<ReadonlyArray<Entry>, StorageUnavailable>;
    /**
     * Holds the turn for another lease; `false` when it is not ours any more. Fails when, which is looked at first,
     * the chat was erased.
     */
    readonly renew: (turn: Turn) => Effect.Effect<boolean, ChatNotFound | StorageUnavailable>;
    /**
     * Appends the entry, makes the chat if it is new, ends the turn and settles its retry key; fails
     * without a trace when another took the turn or, which is looked at first, the chat was erased.
     */
    readonly append: (
      turn: Turn,
      entry: NewEntry,
    ) => Effect.Effect<
      Entry,
      TurnLost | ChatbotNotFound | ChatNotFound | Overloaded | StorageUnavailable
    >;
    /** Ends the turn without an entry and forgets its retry key; harmless when it was lost. */
    readonly release: (turn: Turn) => Effect.Effect<void, StorageUnavailable>;
    /**
     * Hints that the turn of a chat (`null`: of any) may be free; may miss some and may end, but takes no taking
     * or renewal for one. Without hints who waits asks again once a second.
     */
    readonly freed: Stream.Stream<{ readonly chatbot: number; readonly chat: number } | null>;
  }
>()("@parley/core/TurnStore") {}
