/**
 * An entry in a chat's history: a question and its answer.
 */
import type { Schema } from "effect";
import type { ChatId } from "./Ids.ts";
import type { EntryInclude } from "./ListQuery.ts";

/** The cost of an answer, in whole numbers. It is stored with the entry, but not shown to clients. */
export interface Usage {
  readonly provider: string;
  readonly model: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** The number of calls to models, including failed calls. */
  readonly attempts: number;
  readonly latencyMillis: number;
}

/** A JSON object that is kept with an entry, such as the sources of an answer. It is no part of the prompt. */
export interface Metadata {
  readonly [name: string]: Schema.Json;
}

/** An entry to append. */
export interface NewEntry {
  /** Empty in an entry without a question; see {@link hasQuestion}. */
  readonly question: string;
  readonly answer: string;
  /** The category of a flagged question, or `none`. */
  readonly moderation: string;
  readonly flagged: boolean;
  readonly usage: Usage | null;
  readonly metadata?: Metadata | null;
  /** The id of the API key that was used to ask. It is stored only for usage reports. */
  readonly apiKeyId?: string | null;
  /** The tokens that count against the key's daily budget; `null` or absent if the key has no budget. */
  readonly spentTokens?: number | null;
  /** The id of the request that asked, for operators. */
  readonly requestId?: string | null;
}

export const ratings = ["good", "bad"] as const;

/** What a user thinks of an entry. */
export interface Feedback {
  readonly rating: (typeof ratings)[number] | null;
  readonly comment: string | null;
}

/** A stored entry. Ids are positive, below 2^53, and ascend within a chat. */
export interface Entry
  extends Omit<NewEntry, "usage" | "apiKeyId" | "spentTokens" | "requestId">, Partial<Feedback> {
  readonly id: number;
  readonly chatId: ChatId;
  /** Stored in whole milliseconds. */
  readonly createTime: Date;
  // `metadata`, `rating` and `comment` are absent unless the reader asks for them.
}

/** An entry, with its metadata and its feedback, and what clients do not see of it. */
export interface EntryRow {
  readonly entry: Entry;
  readonly usage: Usage | null;
  readonly apiKeyId: string | null;
  readonly requestId: string | null;
}

/** Returns the entry with only those of its additional fields that a reader has asked for. */
export const pickEntry = (
  { comment = null, metadata = null, rating = null, ...entry }: Entry,
  include: ReadonlyArray<EntryInclude>,
): Entry => ({
  ...entry,
  ...(include.includes("metadata") && { metadata }),
  ...(include.includes("feedback") && { rating, comment }),
});

/** Whether a user asked: neither the hello entry nor a posted entry has a question. */
export const hasQuestion = ({ question }: Pick<Entry, "question">): boolean => question !== "";

/** Returns the hello entry of a chat, whose answer is the hello message of the chatbot. */
export const helloEntry = (helloMessage: string): NewEntry => ({
  question: "",
  answer: helloMessage,
  moderation: "none",
  flagged: false,
  usage: null,
});
