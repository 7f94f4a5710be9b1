/**
 * The rules of who may take a turn, and of which ask a client may stop.
 */
import { idempotencyKeyLifetime } from "../model/IdempotencyKey.ts";
import { turnPrecedence, type WaitingAsk } from "../ports/TurnStore.ts";
import type { ChatRow, KeyRow } from "./Rows.ts";

/** Whether any request may claim the key: it is a day old, or its turn's lease has expired. */
export const isFree = ({ madeAt, turnUntil }: KeyRow, now: number): boolean =>
  madeAt + idempotencyKeyLifetime <= now || (turnUntil !== null && turnUntil <= now);

/** What a take depends on. */
export interface TakeState {
  readonly now: number;
  /** The instance of the store that asks for the turn. */
  readonly instance: string;
  /** The fingerprint of the request; `null` if it has no idempotency key. */
  readonly fingerprint: string | null;
  readonly hasChatId: boolean;
  readonly visitor: string | null;
  /** The row of the request's key; `null` if the request has no key, or the key is unknown. */
  readonly key: KeyRow | null;
  /** The row of the request's chat; `null` if the request has no chat, or the chat does not exist. */
  readonly chat: ChatRow | null;
  readonly hasChatbot: boolean;
}

/** The decision on a take, and for the three that hold the request back, when to try again. */
export type TakeDecision =
  | "key_reused"
  | "stopped"
  | "answered"
  | "no_chat"
  | "no_chatbot"
  | "free"
  | { readonly heldBy: "key" | "chat"; readonly until: number };

/** Decides on a take: the first rule that applies. `test/store/takeStates.ts` has a table of examples. */
export const decideTake = (state: TakeState): TakeDecision => {
  const { chat, fingerprint, hasChatbot, hasChatId, instance, now, visitor } = state;
  const key = state.key === null || isFree(state.key, now) ? null : state.key;
  const isClaimed = key !== null && key.turnUntil !== null;
  if (key !== null && key.fingerprint !== fingerprint) return "key_reused";
  if (key?.isStopped) return "stopped";
  if (key !== null && !isClaimed) return key.entryId === null ? "key_reused" : "answered";
  if (hasChatId && (chat === null || (visitor !== null && chat.chat.userRef !== visitor)))
    return "no_chat";
  if (!hasChatId && fingerprint !== null && !hasChatbot) return "no_chatbot";
  if (isClaimed) return { heldBy: "key", until: key.turnUntil! };
  if (chat === null) return "free";
  const { turn, turnUntil, waiting } = chat;
  if (turn !== null && turnUntil > now) return { heldBy: "chat", until: turnUntil };
  const isReserved = waiting.length > 0 && waiting[0] !== instance;
  if (isReserved && turnUntil + turnPrecedence > now)
    return { heldBy: "chat", until: turnUntil + turnPrecedence };
  return "free";
};

/** What a stop depends on. */
export interface StopState {
  readonly now: number;
  readonly key: KeyRow | null;
  /** The ask that waits in the process that stops it. */
  readonly waiting: WaitingAsk | null;
}

/** The decision on a stop. An entry without a question was posted, so its key names no ask. */
export type StopDecision =
  | "unknown"
  | "stopped"
  | "answered"
  | { readonly stop: Pick<KeyRow, "fingerprint" | "turn" | "chatId"> };

/** Decides on a stop. A turn whose lease has expired can still append, so it can be stopped, too. */
export const decideStop = ({ key, now, waiting }: StopState): StopDecision => {
  const isKnown = key !== null && key.madeAt + idempotencyKeyLifetime > now;
  const isWaiting = waiting !== null && (!isKnown || isFree(key, now));
  if (isWaiting) return { stop: { ...waiting, turn: null } };
  if (!isKnown) return "unknown";
  if (key.isStopped) return "stopped";
  if (key.turnUntil !== null) return { stop: key };
  return key.entryId === null ? "unknown" : "answered";
};
