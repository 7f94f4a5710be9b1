/**
 * The requests with an idempotency key, and their outcomes.
 */
import { idempotencyKeyLifetime, type IdempotencyKey } from "@parley/core";
import type { Lease, Tenant } from "./Memory.ts";

export interface IdempotencyRecord {
  readonly fingerprint: string;
  /** In milliseconds since 1970. */
  readonly createdAt: number;
  /** The turn that works on the request, or what the request stored: a chat, or an entry by a turn. */
  readonly outcome:
    | { readonly _tag: "Pending"; readonly lease: Lease }
    | { readonly _tag: "Chat"; readonly chat: number }
    | {
        readonly _tag: "Entry";
        readonly chat: number;
        readonly entry: number;
        readonly turn: string;
      };
}

/**
 * The record of a key: none if the key was not used, its lifetime is over, or its turn ended without an entry.
 * Removes the records whose lifetime is over.
 */
export const findRecord = (
  { idempotencyRecords: records }: Tenant,
  key: string,
  now: number,
): IdempotencyRecord | undefined => {
  const isOver = ({ createdAt }: IdempotencyRecord) => now - createdAt >= idempotencyKeyLifetime;
  for (const [old, record] of records) {
    if (!isOver(record)) break;
    records.delete(old);
  }
  const record = records.get(key);
  // The clock may have gone back, so that an older record was put behind this one.
  if (record === undefined || isOver(record)) return undefined;
  const { outcome } = record;
  return outcome._tag === "Pending" && outcome.lease.until <= now ? undefined : record;
};

export const putRecord = (
  { idempotencyRecords: records }: Tenant,
  { fingerprint, key }: IdempotencyKey,
  now: number,
  outcome: IdempotencyRecord["outcome"],
): void => {
  // Removed first, so that the map keeps the records in order of age.
  records.delete(key);
  records.set(key, { fingerprint, createdAt: now, outcome });
};
