/**
 * Records of the requests that have an idempotency key, and of their outcomes.
 */
import { idempotencyKeyLifetime, type IdempotencyKey } from "@parley/core/ports";
import type { IdempotencyRecord, Tenant } from "./Memory.ts";

/**
 * Returns the record for an idempotency key; `undefined` if the request has no key, no request has used the key, the key
 * has expired, or its turn has ended without a result. Deletes expired records.
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

/** Records a request's outcome under its idempotency key, if it has one, and ends any earlier turn with that key. */
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
