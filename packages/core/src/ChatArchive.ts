/**
 * Port for operators: erasing, moving and accounting what a chatbot's chats hold.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Chat } from "./Chat.ts";
import type { Entry, Usage } from "./Entry.ts";
import type { ImportRefused, StorageUnavailable } from "./Errors.ts";

/** Which chats to erase. A chat is always erased whole. */
export type Erasable =
  | { readonly _tag: "Chat"; readonly id: number }
  | { readonly _tag: "UserRef"; readonly userRef: string }
  /** Chats that were made before the limit and have no entry since. */
  | { readonly _tag: "IdleSince"; readonly limit: Date };

/**
 * Each may take as long as reading everything. A quick one leaves what it would have to write anew at length, such as
 * a large index in which texts of erased chats stay, to the next thorough one; a full one leaves no byte of what was
 * erased in any file of the storage, though all may have to wait meanwhile.
 */
export type CompactionPace = "quick" | "thorough" | "full";

/** One chat or entry of an export: chats ascend, each followed by its entries. */
export type ArchiveRecord =
  | { readonly _tag: "Chat"; readonly chat: Chat }
  | { readonly _tag: "Entry"; readonly entry: Entry; readonly usage: Usage | null };

/** What the answers of one provider's model cost. */
export interface UsageSum {
  readonly provider: string;
  readonly model: string;
  readonly answers: number;
  readonly attempts: number;
  readonly promptTokens: number;
  readonly completionTokens: number;
}

export class ChatArchive extends Context.Service<
  ChatArchive,
  {
    /**
     * Erases the chats with everything that refers to them, the retry keys of asks under way, too; gives how many
     * there were. Those that are made meanwhile may stay. `compact` is to follow, once after several.
     */
    readonly erase: (chatbot: number, which: Erasable) => Effect.Effect<number, StorageUnavailable>;
    /**
     * Ends erasures, of any chatbots: afterwards the space of what they erased can be used again, and
     * nothing of it is left in what the storage keeps beside the rows. Tells whether that is done as far as the pace and
     * the role allow: not where others were in the way, so that a later one makes up for it. A full one is done only if the
     * role allows all of it.
     */
    readonly compact: (pace: CompactionPace) => Effect.Effect<boolean, StorageUnavailable>;
    /**
     * Every chat and entry of the chatbot, of one snapshot. Who reads it may write meanwhile, and read another.
     */
    readonly export: (chatbot: number) => Stream.Stream<ArchiveRecord, StorageUnavailable>;
    /**
     * Stores an export with its ids and times, whole or not at all; gives how many chats. Later ids and times go
     * on from the imported ones. Others may write meanwhile, and so may the stream itself, to other chatbots.
     * Refused are a chatbot that has chats, chats that do not ascend by id, entries that do not follow their chat or
     * do not ascend in it, times that go back, in the chats or from a chat to its entries, or are not within the
     * years 1 to 9999, and ids that are twice, no positive integers, or greater than 2^53 - 2^40. Texts are taken as they
     * are: whoever reads them from outside decodes them, and sees that none is longer than a client's may be.
     */
    readonly import: <E, R>(
      chatbot: number,
      records: Stream.Stream<ArchiveRecord, E, R>,
    ) => Effect.Effect<number, E | ImportRefused | StorageUnavailable, R>;
    /** Sums per provider and model, in any order, over the entries stored at that time or later. */
    readonly usage: (
      chatbot: number,
      since: Date,
    ) => Effect.Effect<ReadonlyArray<UsageSum>, StorageUnavailable>;
  }
>()("@parley/core/ChatArchive") {}
