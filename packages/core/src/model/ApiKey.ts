/**
 * API keys: `prl_<id>_<secret>_<checksum>`, in base 62. The checksum identifies a mistyped key without a look-up in
 * the store. A store keeps the SHA-256 of the whole text, never the text.
 */
import { Effect, Redacted } from "effect";
import { Digest, SecureRandom } from "effect/crypto";

export const scopes = ["read", "write", "ask"] as const;
/** The permissions of a key: read lists and details, create chats, ask. */
export type Scope = (typeof scopes)[number];

/** A key to register. It does not contain the key's text. */
export interface KeyRecord {
  /** The id in the key's text. */
  readonly id: string;
  /** SHA-256 of the whole key's text. */
  readonly hash: Uint8Array;
  readonly name: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  /** `null`: never. */
  readonly expiresAt: Date | null;
  /** How many requests each server process accepts in a minute; `null`: any number. */
  readonly ratePerMinute: number | null;
}

/** A key in a registry. */
export interface RegisteredKey extends KeyRecord {
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
  /** Accurate to a minute; `null` for a key that was never used. */
  readonly lastUsedAt: Date | null;
}

export type KeyState = "live" | "expired" | "revoked";

/** The state of a key at `now`, in milliseconds since 1970. */
export const keyState = (
  { expiresAt, revokedAt }: Pick<RegisteredKey, "expiresAt" | "revokedAt">,
  now: number,
): KeyState =>
  revokedAt !== null
    ? "revoked"
    : expiresAt !== null && expiresAt.getTime() <= now
      ? "expired"
      : "live";

const alphabet = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
const idLength = 12;
/** 32 base-62 digits: 190.5 bits. */
const secretLength = 32;
const checksumLength = 6;
const shape = /^prl_([0-9A-Za-z]{12})_[0-9A-Za-z]{32}_([0-9A-Za-z]{6})$/;

/** The id in the text of a well-formed key; `null` for any other text. */
export const keyId = (key: string): string | null => {
  const match = shape.exec(key);
  if (match === null) return null;
  return checksum(key.slice(0, -checksumLength - 1)) === match[2] ? match[1]! : null;
};

/** Generates the text of a new key. */
export const generateKey: Effect.Effect<Redacted.Redacted, never, SecureRandom.SecureRandom> =
  SecureRandom.SecureRandom.use((random) =>
    Effect.map(random.randomBytes(128), (bytes) => {
      // 248 = 4 × 62: with larger bytes, some digits would be more likely than others.
      let digits = "";
      for (const byte of bytes) if (byte < 248) digits += alphabet[byte % 62];
      const body = `prl_${digits.slice(0, idLength)}_${digits.slice(idLength, idLength + secretLength)}`;
      return Redacted.make(`${body}_${checksum(body)}`);
    }),
  );

/** The SHA-256 of a key's text. */
export const hashKey = (key: string): Effect.Effect<Uint8Array, never, Digest.Digest> =>
  Digest.Digest.use((digest) => digest.digest(Digest.sha256, new TextEncoder().encode(key)));

/**
 * The record of a well-formed key; dies if the key is malformed. Without `more`, the key has every scope, no name and
 * no rate, and never expires.
 */
export const keyRecord = (
  key: string,
  more: Partial<Pick<KeyRecord, "name" | "scopes" | "expiresAt" | "ratePerMinute">> = {},
): Effect.Effect<KeyRecord, never, Digest.Digest> =>
  Effect.flatMap(hashKey(key), (hash) => {
    const id = keyId(key);
    return id === null
      ? Effect.die(new Error("the key is not well-formed"))
      : Effect.succeed({
          id,
          hash,
          name: null,
          scopes,
          expiresAt: null,
          ratePerMinute: null,
          ...more,
        });
  });

/** CRC-32 in six base-62 digits. */
const checksum = (text: string): string => {
  let crc = 0xffffffff;
  for (const character of text) {
    crc ^= character.charCodeAt(0);
    for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  }
  let rest = ~crc >>> 0;
  let digits = "";
  for (let i = 0; i < checksumLength; i++) {
    digits = alphabet[rest % 62] + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
};
