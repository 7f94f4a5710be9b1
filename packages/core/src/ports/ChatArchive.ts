/**
 * Port for operators: erases, exports and imports chats, totals the cost of answers, and reads feedback.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry, EntryRow, Usage } from "../model/Entry.ts";
import type {
  ChatbotNotFound,
  ChatNotFound,
  ImportRefused,
  StorageUnavailable,
} from "../model/Errors.ts";
import type { ChatbotId, ChatId } from "../model/Ids.ts";

/** A person whose chats are erased or exported. */
export interface Person {
  readonly userRef: string;
  /** A salted digest of `userRef`, for the audit log; see `Administration.person`. */
  readonly digest?: string;
}

/** The chats to erase. A chat is always erased as a whole. */
export type Erasable =
  | { readonly _tag: "Chat"; readonly id: ChatId }
  | ({ readonly _tag: "UserRef" } & Person)
  /** Chats that were created before `limit` and have no entry at or after it. */
  | { readonly _tag: "IdleSince"; readonly limit: Date }
  /** Like `IdleSince`, with `limit` set to `millis` milliseconds before the current time on the store's clock. */
  | { readonly _tag: "IdleFor"; readonly millis: number }
  | { readonly _tag: "All" };

/** An erasure whose limit does not depend on the current time. */
export type DatedErasure = Exclude<Erasable, { readonly _tag: "IdleFor" }>;

/** Replaces `IdleFor` with a fixed limit. `now` is the store's current time, in milliseconds since the Unix epoch. */
export const erasureAt = (which: Erasable, now: number): DatedErasure =>
  which._tag === "IdleFor" ? { _tag: "IdleSince", limit: new Date(now - which.millis) } : which;

/** Returns the detail for an erasure's entry in the audit log. It contains no user text, and so no `userRef`. */
export const erasureDetail = (which: DatedErasure, erased: number): string => {
  const chats = importDetail(erased);
  switch (which._tag) {
    case "Chat":
      return `chat ${which.id}`;
    case "UserRef":
      return `${chats} of ${exportDetail(which)}`;
    case "IdleSince":
      return `${chats} idle since ${which.limit.toISOString()}`;
    case "All":
      return chats;
  }
};

/** Returns the detail for an export's entry in the audit log. */
export const exportDetail = (person?: Person): string =>
  person === undefined ? "" : `a userRef ${person.digest ?? ""}`.trimEnd();

/** Returns the detail for an import's entry in the audit log. */
export const importDetail = (chats: number): string => `${chats} ${chats === 1 ? "chat" : "chats"}`;

/** A chat or an entry in an export. `checkArchiveOrder` documents the order of the records. */
export type ArchiveRecord =
  | { readonly _tag: "Chat"; readonly chat: Chat }
  | {
      readonly _tag: "Entry";
      /** With its metadata and its feedback. */
      readonly entry: Entry;
      readonly usage: Usage | null;
    };

/**
 * What the usage report groups answers by: the UTC day (such as `2026-11-25`), the id of the API key that asked, or the
 * `userRef` of the chat.
 */
export type UsageGroup = "day" | "key" | "userRef";

/**
 * Which answers a usage report counts: those from `since` and before `until`, if any. An answer that has been erased
 * counts as of the beginning of its UTC day.
 */
export interface UsageQuery {
  readonly since: Date;
  readonly until?: Date | null;
  readonly by?: UsageGroup | null;
}

/** The total cost of all answers from one provider's model, within one group. */
export interface UsageSum extends Omit<Usage, "latencyMillis" | "provider" | "model"> {
  /** Like `model`, `null` for answers that did not come from a model. */
  readonly provider: string | null;
  readonly model: string | null;
  /** `null` if answers are not grouped, and for answers that have no known key or no `userRef`. */
  readonly group: string | null;
  readonly answers: number;
}

/** What a chatbot keeps. A store may estimate the entries and the bytes of a large one. */
export interface ChatbotSize {
  readonly chatbot: ChatbotId;
  readonly chats: number;
  readonly entries: number;
  /** The bytes of its chats and entries as they are stored, without indexes. */
  readonly bytes: number;
}

/** About how many bytes a chat or an entry takes in addition to the texts of an entry. */
export const bytesPerRow = 150;

/** Entries that have a rating, or entries for which the documents had nothing (`metadata.found` is `false`). */
export type FeedbackKind = "rated" | "unanswered";

/**
 * Each erasure, export and import adds one entry, with its actor, to the audit log: an erasure at its end, if it erased
 * any chats; an export at its start; an import together with the chats.
 */
export class ChatArchive extends Context.Service<
  ChatArchive,
  {
    /**
     * Erases the chats with their entries, turns and idempotency keys, including the keys of asks in progress. Also
     * forgets the keys of visitors' asks that have no chat yet, because such a key contains a `userRef`: with
     * `UserRef`, the keys of that user; with `All`, all such keys; with a limit, those whose lease expired before the
     * limit. Returns the number of erased chats. Chats that are created during the erasure may remain.
     */
    readonly erase: (
      chatbot: ChatbotId,
      which: Erasable,
      actor: string,
    ) => Effect.Effect<number, ChatbotNotFound | StorageUnavailable>;
    /**
     * Erases one chat on behalf of a client, and returns the chat as it was. The actor is the id of the API key. With a
     * `visitor`, a chat with another `userRef` or none counts as missing, and the audit log sums the day's deletions by
     * the key's visitors in one entry.
     */
    readonly deleteChat: (
      chatbot: ChatbotId,
      chatId: ChatId,
      actor: string,
      visitor?: string | null,
    ) => Effect.Effect<Chat, ChatNotFound | StorageUnavailable>;
    /**
     * Exports every chat and entry of the chatbot, or only those of one person, from one snapshot. While the export
     * runs, its reader may write to the store or read another export.
     */
    readonly export: (
      chatbot: ChatbotId,
      actor: string,
      person?: Person,
    ) => Stream.Stream<ArchiveRecord, ChatbotNotFound | StorageUnavailable>;
    /**
     * Stores the records with their ids and times, all or none, and returns the number of chats. Chats and entries
     * created afterwards have greater ids and no earlier times. Fails with `ImportRefused` if the chatbot already has
     * chats (before reading any record), if `checkArchiveOrder` rejects a record, or if two entries have the same id.
     * Strings are stored as they are: the caller validates them, as `decodeArchive` does.
     */
    readonly import: <E, R>(
      chatbot: ChatbotId,
      records: Stream.Stream<ArchiveRecord, E, R>,
      actor: string,
    ) => Effect.Effect<number, E | ChatbotNotFound | ImportRefused | StorageUnavailable, R>;
    /**
     * Returns the totals for each provider and model, and for each group if `by` is given, in any order. Counts no
     * entries without a question and no flagged questions. Imported entries have no key. Answers that have been erased
     * count for 400 days, without a `userRef`.
     */
    readonly usage: (
      chatbot: ChatbotId,
      query: UsageQuery,
    ) => Effect.Effect<ReadonlyArray<UsageSum>, StorageUnavailable>;
    /** Returns the size of every chatbot, in any order. Takes the same short time however much a store on PostgreSQL keeps. */
    readonly sizes: Effect.Effect<ReadonlyArray<ChatbotSize>, StorageUnavailable>;
    /** Emits the chatbot's entries of this kind that were created at or after `since`, newest first. */
    readonly feedback: (
      chatbot: ChatbotId,
      since: Date,
      kind: FeedbackKind,
    ) => Stream.Stream<EntryRow, StorageUnavailable>;
  }
>()("@parley/core/ChatArchive") {}
