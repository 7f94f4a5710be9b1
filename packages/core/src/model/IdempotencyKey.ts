/**
 * What makes a repeated request recognisable: a client's `Idempotency-Key` and a digest of what the
 * request asks for.
 */
import { Effect, Schema } from "effect";
import { Digest } from "effect/crypto";
import { isStorable } from "./Text.ts";

/** A client's own key for a request: 1 to 255 printable ASCII characters. */
export const IdempotencyKey = Schema.String.check(
  Schema.makeFilter<string>(
    (key) => (/^[\x20-\x7e]{1,255}$/.test(key) && isStorable(key)) || "is not printable ASCII",
    { identifier: "printable" },
  ),
).pipe(Schema.brand("IdempotencyKey"));
export type IdempotencyKey = typeof IdempotencyKey.Type;

/** How long a key that made something stays known, in milliseconds. */
export const retryKeyLifetime = 24 * 60 * 60 * 1000;

export interface RetryKey {
  readonly key: string;
  /** Equal for equal requests: the SHA-256 of endpoint and decoded values, so no text is kept. */
  readonly fingerprint: string;
}

/** Builds the key of a request; `values` must be the decoded ones. */
export const retryKey = (
  key: IdempotencyKey,
  endpoint: "chats" | "ask",
  values: ReadonlyArray<string | number | null>,
): Effect.Effect<RetryKey, never, Digest.Digest> =>
  Digest.Digest.use((digest) =>
    Effect.map(
      digest.digestHex(Digest.sha256, new TextEncoder().encode(JSON.stringify([endpoint, values]))),
      (fingerprint) => ({ key, fingerprint }),
    ),
  );
