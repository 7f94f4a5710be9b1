import type { ChatId } from "./Ids.ts";

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
   * What happens if the caller's fiber is interrupted. With `finish` (the default), the answer is completed and stored.
   * With `cancel`, the answer is interrupted and, unless the append has begun, not stored. If several requests share an
   * idempotency key, the last request to stop waiting decides.
   */
  readonly onDisconnect?: "finish" | "cancel";
}
