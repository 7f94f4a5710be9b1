/**
 * The requests with an idempotency key, and their outcomes.
 */
import { idempotencyKeyLifetime, type IdempotencyKey } from "@parley/core/ports";
import type { Tenant } from "./Memory.ts";

export interface IdempotencyRecord {
  readonly fingerprint: string;
  /** In milliseconds since 1970. */
  readonly createdAt: number;
  /**
   * The turn that works on the request, with its chat if that exists; or what the request stored: a chat, or an entry
   * with its turn.
   */
  readonly outcome:
    | { readonly _tag: "Pending"; readonly chat: number | null; readonly turnId: string }
    | { readonly _tag: "Chat"; readonly chat: number }
    | {
        readonly _tag: "Entry";
        readonly chat: number;
        readonly entry: number;
        readonly turnId: string;
      };
}

/**
 * The record of a key; `undefined` without a key, or if the key has not been used, its lifetime is over, or its turn is
 * no longer held. Removes the records whose lifetime is over.
 */
export const findRecord = (
  { idempotencyRecords: records, leases }: Tenant,
  idempotencyKey: IdempotencyKey | null,
  now: number,
): IdempotencyRecord | undefined => {
  for (const [key, { createdAt }] of records) {
    if (now - createdAt < idempotencyKeyLifetime) break;
    records.delete(key);
  }
  const record = idempotencyKey === null ? undefined : records.get(idempotencyKey.key);
  const isFree =
    record?.outcome._tag === "Pending" && (leases.get(record.outcome.turnId) ?? now) <= now;
  return isFree ? undefined : record;
};

/** Records the outcome of a key's request, and ends an earlier turn that had the key. Does nothing without a key. */
export const putRecord = (
  { chats, idempotencyRecords: records, leases }: Tenant,
  idempotencyKey: IdempotencyKey | null,
  now: number,
  outcome: IdempotencyRecord["outcome"],
): void => {
  if (idempotencyKey === null) return;
  const { fingerprint, key } = idempotencyKey;
  const before = records.get(key)?.outcome;
  if (before?._tag === "Pending") {
    const chat = chats.get(before.chat ?? 0);
    if (chat?.turnId === before.turnId)
      chat.turnEnded = leases.get(before.turnId) ?? chat.turnEnded;
    leases.delete(before.turnId);
  }
  // Removed first, so that the map keeps the records in order of age.
  records.delete(key);
  records.set(key, { fingerprint, createdAt: now, outcome });
};
