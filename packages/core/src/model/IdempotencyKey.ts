/**
 * A client's `Idempotency-Key`, and the fingerprint of its request, by which a repeated request is recognized.
 */
import { Effect, Schema } from "effect";
import { Digest } from "effect/crypto";
import { dayMillis } from "./Day.ts";

/** A client's idempotency key: 1 to 255 printable ASCII characters. */
export const IdempotencyKeyText = Schema.String.check(
  Schema.isPattern(/^[\x20-\x7e]{1,255}$/, {
    problem: "NOT_PRINTABLE",
    message: "must be 1 to 255 printable ASCII characters",
  }),
);

/** How long a store remembers the key of a request that succeeded, in milliseconds. */
export const idempotencyKeyLifetime = dayMillis;

/** An idempotency key, with the fingerprint of the request that it belongs to. */
export interface IdempotencyKey {
  /** The client's key. For a visitor, a line feed (which no client can send) and the `userRef` are appended. */
  readonly key: string;
  /** The SHA-256 of the endpoint and the decoded values, which are not stored. Equal requests have equal hashes. */
  readonly fingerprint: string;
}

/** Returns the key as a store knows it. Each visitor's keys are separate. */
export const storedKeyOf = (key: string, visitor: string | null): string =>
  visitor === null ? key : `${key}\n${visitor}`;

/** Whose key a stored key is; `undefined` if it is no visitor's. */
export const visitorOf = (storedKey: string): string | undefined => /\n(.*)$/s.exec(storedKey)?.[1];

/**
 * Creates the idempotency key of a request with these decoded values; returns `null` if the client sent no key.
 * `visitor` is the `userRef` of the visitor who sent the request, or `null`.
 */
export const toIdempotencyKey = Effect.fnUntraced(function* (
  digest: Digest.Digest["Service"],
  key: string | null,
  endpoint: "chats" | "ask" | "post",
  values: ReadonlyArray<string | number | null>,
  visitor: string | null,
) {
  if (key === null) return null;
  const request = new TextEncoder().encode(JSON.stringify([endpoint, values]));
  const fingerprint = yield* digest.digestHex(Digest.sha256, request);
  return { key: storedKeyOf(key, visitor), fingerprint } satisfies IdempotencyKey;
});
