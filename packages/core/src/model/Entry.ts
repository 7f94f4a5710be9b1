/**
 * An entry of a chat's history: a question and its answer (section 2.3).
 */
import { storableText } from "./Text.ts";

/** The cost of an answer. It is stored with the entry, and clients do not see it. */
export interface Usage {
  readonly provider: string;
  readonly model: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** The number of calls of the model, failed ones included. */
  readonly attempts: number;
  readonly latencyMillis: number;
}

/** The usage in a form that every store keeps: an answerer may report any number and any text. */
export const storableUsage = (usage: Usage): Usage => ({
  provider: storableText(usage.provider),
  model: storableText(usage.model),
  promptTokens: wholeCount(usage.promptTokens),
  completionTokens: wholeCount(usage.completionTokens),
  attempts: wholeCount(usage.attempts, 2 ** 31 - 1),
  latencyMillis: wholeCount(usage.latencyMillis),
});

const wholeCount = (count: number, most: number = Number.MAX_SAFE_INTEGER): number => {
  const whole = Math.round(Number(count));
  return Number.isNaN(whole) ? 0 : Math.min(Math.max(0, whole), most);
};

/** An entry to append. */
export interface NewEntry {
  /** Empty in the hello entry. */
  readonly question: string;
  readonly answer: string;
  /** The category of a flagged question, else `none`. */
  readonly moderation: string;
  readonly flagged: boolean;
  readonly usage: Usage | null;
}

/** A stored entry. Ids are positive, below 2^53, and ascend within a chat. */
export interface Entry {
  readonly id: number;
  readonly chatId: number;
  readonly question: string;
  readonly answer: string;
  readonly moderation: string;
  readonly flagged: boolean;
  /** Whole milliseconds. */
  readonly createTime: Date;
}

/** The first entry of a chat whose chatbot has a hello message. */
export const helloEntry = (helloMessage: string): NewEntry => ({
  question: "",
  answer: helloMessage,
  moderation: "none",
  flagged: false,
  usage: null,
});
