import type { Metadata } from "./Entry.ts";
import type { ChatId } from "./Ids.ts";

/** An entry without a question, such as a colleague's answer. An invalid value fails it with `ArgumentInvalid`. */
export interface Post extends Pick<Ask, "idempotencyKey" | "apiKeyId" | "visitor" | "requestId"> {
  readonly chatId: ChatId;
  /** 1 to 10,000 code points, not blank. */
  readonly text: string;
  readonly metadata?: Metadata | null;
}

/**
 * A question, with its chat and its idempotency key. All values are validated before anything else happens; an invalid
 * value fails the ask with `ArgumentInvalid`.
 */
export interface Ask {
  /**
   * The chat to continue; `null` for a new chat, which has no hello entry and is created together with its first entry.
   */
  readonly chatId: ChatId | null;
  readonly question: string;
  readonly idempotencyKey?: string | null;
  /** The id of the API key that asks, for usage reports and the budget; `null` (the default) if there is none. */
  readonly apiKeyId?: string | null;
  /** How many tokens the API key may spend per day (UTC); `null` (the default) if there is no limit. */
  readonly tokensPerDay?: number | null;
  /** The only user whose chats the ask may use (the `visitor` of a `Principal`); `null` (the default) for any user. */
  readonly visitor?: string | null;
  /**
   * Whatever the moderator and the answerer need to know of the caller. It is handed on as it is, and is neither stored
   * nor part of the request that an idempotency key stands for: an ask that joins another has the other's context.
   */
  readonly context?: unknown;
  /** The id of the request, which is stored with the entry for operators. */
  readonly requestId?: string | null;
  /**
   * What happens if the caller's fiber is interrupted. With `finish` (the default), the answer is completed and stored.
   * With `cancel`, the answer is interrupted and, unless the append has begun, not stored. If several requests share an
   * idempotency key, the last request to stop waiting decides.
   */
  readonly onDisconnect?: "finish" | "cancel";
}
