/**
 * API keys: `prl_<id>_<secret>_<checksum>`, all base 62. The checksum tells a mistyped key from an
 * unknown one without asking any store; only the SHA-256 of the whole text is ever kept.
 */
import { Effect, Redacted } from "effect";
import { Digest, SecureRandom } from "effect/crypto";

export const scopes = ["read", "write", "ask"] as const;
/** What a key may do: read lists and details, create chats, ask. */
export type Scope = (typeof scopes)[number];

/** A key as it is made: never its text. */
export interface KeyRecord {
  readonly id: string;
  /** SHA-256 of the whole key's text. */
  readonly hash: Uint8Array;
  readonly name: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  readonly expiresAt: Date | null;
}

/** A key as it is kept. */
export interface RegisteredKey extends KeyRecord {
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
  /** To the minute. */
  readonly lastUsedAt: Date | null;
}

export type KeyState = "live" | "expired" | "revoked";

/** What the key is at `now`, in milliseconds since 1970. */
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

/** The id in a well-formed key, `null` for anything else. */
export const keyId = (key: string): string | null => {
  const match = shape.exec(key);
  if (match === null) return null;
  return checksum(key.slice(0, -checksumLength - 1)) === match[2] ? match[1]! : null;
};

/** A fresh key. */
export const generateKey: Effect.Effect<Redacted.Redacted, never, SecureRandom.SecureRandom> =
  SecureRandom.SecureRandom.use((random) =>
    Effect.map(random.randomBytes(128), (bytes) => {
      // 248 = 4 × 62: larger bytes would make some digits likelier than others.
      let digits = "";
      for (const byte of bytes) if (byte < 248) digits += alphabet[byte % 62];
      const body = `prl_${digits.slice(0, idLength)}_${digits.slice(idLength, idLength + secretLength)}`;
      return Redacted.make(`${body}_${checksum(body)}`);
    }),
  );

/** What is kept of a key. */
export const hashKey = (key: string): Effect.Effect<Uint8Array, never, Digest.Digest> =>
  Digest.Digest.use((digest) => digest.digest(Digest.sha256, new TextEncoder().encode(key)));

/** What a registry keeps of a well-formed key, which opens everything for ever unless it is said. */
export const keyRecord = (
  key: string,
  more: Partial<Pick<KeyRecord, "name" | "scopes" | "expiresAt">> = {},
): Effect.Effect<KeyRecord, never, Digest.Digest> =>
  Effect.flatMap(hashKey(key), (hash) => {
    const id = keyId(key);
    return id === null
      ? Effect.die(new Error("the key is not well-formed"))
      : Effect.succeed({ id, hash, name: null, scopes, expiresAt: null, ...more });
  });

const crcTable = Uint32Array.from({ length: 256 }, (_, n) => {
  let c = n;
  for (let k = 0; k < 8; k++) c = c & 1 ? 0xedb88320 ^ (c >>> 1) : c >>> 1;
  return c;
});

/** CRC-32 in six base-62 digits. */
const checksum = (text: string): string => {
  let crc = 0xffffffff;
  for (let i = 0; i < text.length; i++) {
    crc = crcTable[(crc ^ text.charCodeAt(i)) & 0xff]! ^ (crc >>> 8);
  }
  let rest = (crc ^ 0xffffffff) >>> 0;
  let digits = "";
  for (let i = 0; i < checksumLength; i++) {
    digits = alphabet[rest % 62] + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
};
