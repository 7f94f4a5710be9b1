/**
 * Idempotency keys, which turns and creations share.
 */
import { Effect } from "effect";
import { idempotencyKeyLifetime, type IdempotencyKey } from "../model/IdempotencyKey.ts";
import type { ChatbotId } from "../model/Ids.ts";
import type { KeyRow, Tx } from "./Rows.ts";

/** Reads the row of a request's key; `null` if the request has no key. */
export const ownKey = (tx: Tx, chatbot: ChatbotId, idempotencyKey: IdempotencyKey | null) =>
  idempotencyKey === null ? Effect.succeed(null) : tx.idempotencyKey(chatbot, idempotencyKey.key);

/** Writes the row of a request's key, if the request has one, in place of an earlier row. */
export const writeKey = (
  tx: Tx,
  chatbot: ChatbotId,
  idempotencyKey: IdempotencyKey | null,
  row: Pick<KeyRow, "chatId"> & Partial<KeyRow>,
) =>
  idempotencyKey === null
    ? Effect.void
    : tx.setIdempotencyKey(chatbot, idempotencyKey.key, {
        fingerprint: idempotencyKey.fingerprint,
        madeAt: tx.now,
        turn: null,
        turnUntil: null,
        entryId: null,
        isStopped: false,
        ...row,
      });

/** Deletes old keys before a request adds one. */
export const sweepKeys = (tx: Tx, chatbot: ChatbotId, idempotencyKey: IdempotencyKey | null) =>
  idempotencyKey === null
    ? Effect.void
    : tx.sweepIdempotencyKeys(chatbot, tx.now - idempotencyKeyLifetime);
