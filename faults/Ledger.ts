/**
 * What was asked of the service, and what it acknowledged.
 */

export type { Chat, Entry } from "../apps/server/test/contract/client.ts";

interface Wanted {
  /** In the chat's name or the entry's question, and nowhere else. */
  readonly token: string;
  readonly idempotencyKey: string | undefined;
  /** The bytes of `data` of a 201; `null` as long as none came. */
  acknowledged: string | null;
  /** How often it was sent. */
  attempts: number;
}

export interface WantedChat extends Wanted {
  readonly kind: "create";
  readonly userRef: string | null;
}

export interface WantedEntry extends Wanted {
  readonly kind: "ask";
  /** `null`: a chat of its own. */
  readonly chatId: number | null;
}

export type Request = WantedChat | WantedEntry;

export interface Ledger {
  readonly requests: Array<Request>;
  /** Ids of acknowledged chats that POST /chats made, oldest first. */
  readonly chats: Array<number>;
  /** What went against the promises while it was going on. */
  readonly violations: Array<string>;
}

export const makeLedger = (): Ledger => ({ requests: [], chats: [], violations: [] });

/** The bytes of `data` in the body of a 201. */
export const dataBytes = (text: string): string => {
  const found = /^\{"status":201,"data":(\{.*\})\}$/s.exec(text);
  if (found === null) throw new Error(`Not the body of a 201: ${text}`);
  return found[1]!;
};
