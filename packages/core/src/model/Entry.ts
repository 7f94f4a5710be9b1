/**
 * An entry in a chat's history: a question and its answer.
 */
import type { ChatId } from "./Ids.ts";

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

/** An entry to append. */
export interface NewEntry {
  /** Empty in the hello entry. */
  readonly question: string;
  readonly answer: string;
  /** The category of a flagged question, or `none`. */
  readonly moderation: string;
  readonly flagged: boolean;
  readonly usage: Usage | null;
  /** The id of the API key that was used to ask. It is stored only for usage reports. */
  readonly apiKeyId?: string | null;
  /** The tokens that count against the key's daily budget; `null` or absent if the key has no budget. */
  readonly spentTokens?: number | null;
}

/** A stored entry. Ids are positive, below 2^53, and ascend within a chat. */
export interface Entry extends Omit<NewEntry, "usage" | "apiKeyId" | "spentTokens"> {
  readonly id: number;
  readonly chatId: ChatId;
  /** Stored in whole milliseconds. */
  readonly createTime: Date;
}

/** Returns the hello entry of a chat, whose answer is the hello message of the chatbot. */
export const helloEntry = (helloMessage: string): NewEntry => ({
  question: "",
  answer: helloMessage,
  moderation: "none",
  flagged: false,
  usage: null,
});
