/**
 * One question with its answer: an entry of a chat's history (section 2.3).
 */

import { storableText } from "./Text.ts";

/** What an answer cost; stored with its entry, never on the wire. */
export interface Usage {
  readonly provider: string;
  readonly model: string;
  readonly promptTokens: number;
  readonly completionTokens: number;
  /** How many calls it took, failed ones included. */
  readonly attempts: number;
  readonly latencyMillis: number;
}

/** The same as every store can keep it: whoever answers may count and name as it likes. */
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

/** What a turn appends. */
export interface NewEntry {
  /** Empty in the hello entry. */
  readonly question: string;
  readonly answer: string;
  /** `none`, or the category that flagged the question. */
  readonly moderation: string;
  readonly flagged: boolean;
  readonly usage: Usage | null;
}

/** A stored entry. Ids ascend within a chat. */
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

/** The entry that a new chat starts with when its chatbot has a hello message. */
export const helloEntry = (helloMessage: string): NewEntry => ({
  question: "",
  answer: helloMessage,
  moderation: "none",
  flagged: false,
  usage: null,
});
