/**
 * Port for operators: erases, exports and imports chats, and sums up the cost of answers.
 */
import { Context, type Effect, type Stream } from "effect";
import type { Chat } from "../model/Chat.ts";
import type { Entry, Usage } from "../model/Entry.ts";
import type { ChatbotNotFound, ImportRefused, StorageUnavailable } from "../model/Errors.ts";
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
  /** Chats that were created before `limit` and have no entry from `limit` on. */
  | { readonly _tag: "IdleSince"; readonly limit: Date }
  /** As `IdleSince`, with a limit `millis` milliseconds before the current time of the store's clock. */
  | { readonly _tag: "IdleFor"; readonly millis: number }
  | { readonly _tag: "All" };

/** An erasure whose limit does not depend on the current time. */
export type DatedErasure = Exclude<Erasable, { readonly _tag: "IdleFor" }>;

/** The erasure at `now`, the current time of the store's clock (in milliseconds since 1970). */
export const erasureAt = (which: Erasable, now: number): DatedErasure =>
  which._tag === "IdleFor" ? { _tag: "IdleSince", limit: new Date(now - which.millis) } : which;

/** The detail of an erasure's entry in the audit log. It contains no user text, so no `userRef`. */
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

/** The detail of an export's entry in the audit log. */
export const exportDetail = (person?: Person): string =>
  person === undefined ? "" : `a userRef ${person.digest ?? ""}`.trimEnd();

/** The detail of an import's entry in the audit log. */
export const importDetail = (chats: number): string => `${chats} ${chats === 1 ? "chat" : "chats"}`;

/** A chat or an entry of an export. `checkArchiveOrder` states their order. */
export type ArchiveRecord =
  | { readonly _tag: "Chat"; readonly chat: Chat }
  | { readonly _tag: "Entry"; readonly entry: Entry; readonly usage: Usage | null };

/**
 * What the usage report groups answers by: the day in UTC, as in `2026-11-25`, the id of the API key that asked, or the
 * `userRef` of the chat.
 */
export type UsageGroup = "day" | "key" | "userRef";

/** The cost of all answers of one model of a provider, in one group. */
export interface UsageSum extends Omit<Usage, "latencyMillis" | "provider" | "model"> {
  /** `null`, like `model`, for answers without a model. */
  readonly provider: string | null;
  readonly model: string | null;
  /** `null` without groups, and for answers without a known key or without a `userRef`. */
  readonly group: string | null;
  readonly answers: number;
}

/**
 * Erasures, exports and imports add one entry each to the audit log, with their actor: an erasure at its end, if it
 * erased any chat; an export at its start; an import together with the chats.
 */
export class ChatArchive extends Context.Service<
  ChatArchive,
  {
    /**
     * Erases the chats with their entries, turns and idempotency keys, the keys of asks in progress included. It also
     * forgets the keys of visitors' asks that have no chat yet, because such a key contains a `userRef`: with
     * `UserRef`, the keys of that user; with `All`, all of them; with a limit, those whose lease ended before the
     * limit. Returns the number of erased chats. Chats that are created meanwhile may stay.
     */
    readonly erase: (
      chatbot: ChatbotId,
      which: Erasable,
      actor: string,
    ) => Effect.Effect<number, ChatbotNotFound | StorageUnavailable>;
    /**
     * Every chat and entry of the chatbot, or of one person in it, from one snapshot. The reader may write to the store
     * meanwhile, and read another export.
     */
    readonly export: (
      chatbot: ChatbotId,
      actor: string,
      person?: Person,
    ) => Stream.Stream<ArchiveRecord, ChatbotNotFound | StorageUnavailable>;
    /**
     * Stores the records with their ids and times, all of them or none, and returns the number of chats. Later chats
     * and entries have greater ids, and times that are not earlier. Fails with `ImportRefused` if the chatbot has
     * chats, before it reads a record; at a record that `checkArchiveOrder` refuses; or if two entries have the same
     * id. Texts are stored as they are: the caller checks them, as `decodeArchive` does.
     */
    readonly import: <E, R>(
      chatbot: ChatbotId,
      records: Stream.Stream<ArchiveRecord, E, R>,
      actor: string,
    ) => Effect.Effect<number, E | ChatbotNotFound | ImportRefused | StorageUnavailable, R>;
    /**
     * The sums for each provider and model, and each group if `by` is given, in any order, over the entries from
     * `since` on. Hello entries and flagged questions do not count as answers. Imported entries have no key.
     */
    readonly usage: (
      chatbot: ChatbotId,
      since: Date,
      by?: UsageGroup | null,
    ) => Effect.Effect<ReadonlyArray<UsageSum>, StorageUnavailable>;
  }
>()("@parley/core/ChatArchive") {}
