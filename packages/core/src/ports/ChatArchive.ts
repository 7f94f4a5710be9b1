/**
 * Port for operators: erasing, moving and accounting what a chatbot's chats hold.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry, Usage } from "../model/Entry.ts";
import type { ChatbotNotFound, ImportRefused, StorageUnavailable } from "../model/Errors.ts";

/** Which chats to erase. A chat is always erased whole. */
export type Erasable =
  | { readonly _tag: "Chat"; readonly id: number }
  | { readonly _tag: "UserRef"; readonly userRef: string }
  /** Chats that were made before the limit and have no entry since. */
  | { readonly _tag: "IdleSince"; readonly limit: Date }
  | { readonly _tag: "All" };

/** The detail of an erasure's line in the audit. It holds no text of a client, so no `userRef`. */
export const erasureDetail = (which: Erasable, erased: number): string => {
  const chats = importDetail(erased);
  switch (which._tag) {
    case "Chat":
      return `chat ${which.id}`;
    case "UserRef":
      return `${chats} of a userRef`;
    case "IdleSince":
      return `${chats} idle since ${which.limit.toISOString()}`;
    case "All":
      return chats;
  }
};

/** The detail of an import's line in the audit. */
export const importDetail = (chats: number): string => `${chats} ${chats === 1 ? "chat" : "chats"}`;

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

/**
 * Erasures, exports and imports write one line each to the audit, under the name of their actor: an erasure when it
 * ends, if it erased anything; an export when it begins; an import in its transaction.
 */
export class ChatArchive extends Context.Service<
  ChatArchive,
  {
    /**
     * Erases the chats with everything that refers to them, including the retry keys of asks in flight, and returns
     * how many it erased. Chats that are created meanwhile may stay.
     */
    readonly erase: (
      chatbot: number,
      which: Erasable,
      actor: string,
    ) => Effect.Effect<number, ChatbotNotFound | StorageUnavailable>;
    /**
     * Every chat and entry of the chatbot, of one snapshot. Who reads it may write meanwhile, and read another.
     */
    readonly export: (
      chatbot: number,
      actor: string,
    ) => Stream.Stream<ArchiveRecord, ChatbotNotFound | StorageUnavailable>;
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
      actor: string,
    ) => Effect.Effect<number, E | ChatbotNotFound | ImportRefused | StorageUnavailable, R>;
    /** Sums per provider and model, in any order, over the entries stored at that time or later. */
    readonly usage: (
      chatbot: number,
      since: Date,
    ) => Effect.Effect<ReadonlyArray<UsageSum>, StorageUnavailable>;
  }
>()("@parley/core/ChatArchive") {}
