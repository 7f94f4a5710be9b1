/**
 * API keys have the form `prl_<id>_<secret>_<checksum>`, whose three parts are in base 62. The checksum reveals a
 * mistyped key without a look-up in the store. A store keeps the SHA-256 hash of the whole key, never the key itself.
 */
import { Effect, Record, Redacted, Schema, Struct } from "effect";
import { Digest, SecureRandom, WebCrypto } from "effect/crypto";

export const scopes = ["read", "write", "ask", "delete", "post"] as const;
/**
 * A permission of a key: reading lists and details; creating and renaming chats; asking questions and rating answers;
 * deleting chats; posting entries.
 */
export type Scope = (typeof scopes)[number];

/** The scopes of a key unless it names others. */
export const defaultScopes = ["read", "write", "ask"] as const satisfies ReadonlyArray<Scope>;

/** The scopes of a key: at least one, without duplicates. */
export const Scopes = Schema.Array(Schema.Literals(scopes)).check(
  Schema.isNonEmpty({ message: `must name at least one of ${scopes.join(", ")}` }),
  Schema.isUnique(),
);

/** A time from 1970 to 9999, which every store can keep and whose year has four digits in ISO 8601. */
export const PointInTime = Schema.Date.check(
  Schema.makeFilter<Date>(
    (date) =>
      (date.getTime() >= Date.UTC(1970) && date.getTime() < Date.UTC(10_000)) ||
      "is not a time between 1970 and 9999",
  ),
);

const originPattern = /^https?:\/\/[\w.:[\]-]+$/;

/** Origins of web pages. The pattern rejects separators, quotation marks and wildcards of `Content-Security-Policy`. */
const Origins = Schema.Array(
  Schema.String.check(
    Schema.makeFilter<string>(
      (text) =>
        (originPattern.test(text) && URL.canParse(text)) ||
        "must be an origin, such as https://shop.example",
      { identifier: "origin", toJsonSchema: () => ({ pattern: originPattern.source }) },
    ),
  ),
);

/**
 * The limits of a key, each with its flag in the commands, and with an example there. All else about a limit follows
 * from this table, but for what it limits.
 */
export const keyLimits = {
  ratePerMinute: {
    flag: "rate",
    example: "60/min",
    maximum: 1e6,
    description: "Maximum requests per minute with the key, per server process",
  },
  visitorRatePerMinute: {
    flag: "visitor-rate",
    example: "10/min",
    maximum: 1e6,
    description: "Maximum requests per minute from each of the key's visitors, per server process",
  },
  tokensPerDay: {
    flag: "budget",
    example: "200000/day",
    maximum: 1e12,
    description: "Maximum language-model tokens for the key's asks per day (UTC)",
  },
} as const;

/**
 * What bounds the use of a key, with the descriptions for the provisioning file and the commands. A limit that is
 * `null` does not apply. Stores keep the result of {@link boundsOf} as one JSON value.
 */
export const KeyBounds = Schema.Struct({
  ...Record.map(keyLimits, ({ description, maximum }) =>
    Schema.NullOr(Schema.Int.check(Schema.isBetween({ minimum: 1, maximum }))).annotate({
      description,
    }),
  ),
  origins: Origins.annotate({ description: "Origins of the pages that may show the key's widget" }),
  anonymous: Schema.Boolean.annotate({
    description:
      "Whether the key's widget gives visitor tokens to anyone; this requires visitors, visitorRatePerMinute and tokensPerDay",
  }),
  /** The result of {@link signingSecretOf} for a key that signs visitor tokens; `null` for any other key. */
  signingSecret: Schema.NullOr(Schema.String.check(Schema.isPattern(/^[0-9a-f]{64}$/))),
});
export interface KeyBounds extends Schema.Schema.Type<typeof KeyBounds> {}

/** A key to register. The record does not contain the key itself. */
export interface KeyRecord extends KeyBounds {
  /** The id in the key. */
  readonly id: string;
  /** The SHA-256 hash of the whole key. */
  readonly hash: Uint8Array;
  readonly name: string | null;
  readonly scopes: ReadonlyArray<Scope>;
  /** `null` if the key never expires. */
  readonly expiresAt: Date | null;
}

/** The default values of the fields that most keys do not set. */
export const plainKey = {
  name: null,
  expiresAt: null,
  ...Record.map(keyLimits, () => null),
  signingSecret: null,
  origins: [],
  anonymous: false,
} as const satisfies Omit<KeyRecord, "id" | "hash" | "scopes">;

/** The limits of a new key that signs visitor tokens, unless it names others. */
export const visitorDefaults = { visitorRatePerMinute: 60 } as const;

const boundNames = Struct.keys(KeyBounds.fields);

/** Picks the bounds of a key. Those that are absent, for example from an older row of a store, have their defaults. */
export const boundsOf = (key: Partial<KeyBounds>): KeyBounds =>
  Struct.pick({ ...plainKey, ...key }, boundNames);

/** Returns whether the widget admits strangers: the key must sign visitor tokens and limit what strangers spend. */
export const admitsAnonymous = (key: Partial<KeyBounds>): boolean =>
  key.anonymous === true &&
  key.signingSecret != null &&
  key.tokensPerDay != null &&
  key.visitorRatePerMinute != null;

/** A key in a registry. */
export interface RegisteredKey extends KeyRecord {
  readonly createdAt: Date;
  readonly revokedAt: Date | null;
  /** Accurate to within a minute; `null` if the key has never been used. */
  readonly lastUsedAt: Date | null;
}

export type KeyState = "live" | "expired" | "revoked";

/** Returns the state of a key at the time `now`, in milliseconds since the Unix epoch. */
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
const shape = /^prl_[0-9A-Za-z]{12}_[0-9A-Za-z]{32}_[0-9A-Za-z]{6}$/;

/** The id of a key that earlier samples and documents showed. Whoever has copied them must choose a key of their own. */
const sampleId = "0V2ClbsUvRtr";

/** Returns the id of a well-formed key, or `null` for any other string, and for the key of the samples. */
export const keyId = (key: string): string | null =>
  shape.test(key) && key.slice(4, 16) !== sampleId && checksum(key.slice(0, 49)) === key.slice(50)
    ? key.slice(4, 16)
    : null;

/** Generates a new key, whose secret of 32 base-62 digits has 190.5 bits of entropy. */
export const generateKey = Effect.gen(function* () {
  const random = yield* SecureRandom.SecureRandom;
  // 248 is 4 × 62. If larger bytes were kept, some digits would be more likely than others.
  const bytes = (yield* random.randomBytes(128)).filter((byte) => byte < 248);
  const digits = Array.from(bytes, (byte) => alphabet[byte % 62]).join("");
  const body = `prl_${digits.slice(0, 12)}_${digits.slice(12, 44)}`;
  return Redacted.make(`${body}_${checksum(body)}`);
});

/** Returns the SHA-256 hash of a key. */
export const hashKey = (key: string): Effect.Effect<Uint8Array, never, Digest.Digest> =>
  Digest.Digest.use((digest) => digest.digest(Digest.sha256, new TextEncoder().encode(key)));

/**
 * Derives the secret with which a key signs visitor tokens: the HMAC-SHA-256 of `parley-visitor` under the key, in
 * lower-case hexadecimal.
 */
export const signingSecretOf = Effect.fnUntraced(function* (key: string) {
  const { subtle } = yield* WebCrypto.WebCrypto;
  const encoder = new TextEncoder();
  const hmac = { name: "HMAC", hash: "SHA-256" };
  const signature = yield* Effect.promise(async () => {
    const hmacKey = await subtle.importKey("raw", encoder.encode(key), hmac, false, ["sign"]);
    return subtle.sign("HMAC", hmacKey, encoder.encode("parley-visitor"));
  });
  return Array.from(new Uint8Array(signature), (byte) => byte.toString(16).padStart(2, "0")).join(
    "",
  );
});

/**
 * Returns the record of a well-formed key; dies if the key is malformed. Fields that `more` omits default to
 * {@link defaultScopes} and the values in {@link plainKey}.
 */
export const keyRecord = Effect.fnUntraced(function* (
  key: string,
  more: Partial<Omit<KeyRecord, "id" | "hash">> = {},
) {
  const id = keyId(key);
  if (id === null) return yield* Effect.die(new Error("the key is not well-formed"));
  const hash = yield* hashKey(key);
  const record: KeyRecord = { id, hash, scopes: defaultScopes, ...plainKey, ...more };
  return record;
});

/** A table of the CRC-32 remainder of each byte, because every request with a key computes a checksum. */
const crcs = Uint32Array.from({ length: 256 }, (_, byte) => {
  let crc = byte;
  for (let bit = 0; bit < 8; bit++) crc = crc & 1 ? 0xedb88320 ^ (crc >>> 1) : crc >>> 1;
  return crc;
});

/** Computes the CRC-32 checksum of the text, in six base-62 digits. */
const checksum = (text: string): string => {
  let crc = 0xffffffff;
  for (let at = 0; at < text.length; at++) {
    crc = crcs[(crc ^ text.charCodeAt(at)) & 0xff]! ^ (crc >>> 8);
  }
  let rest = ~crc >>> 0;
  let digits = "";
  for (let place = 0; place < 6; place++) {
    digits = alphabet[rest % 62] + digits;
    rest = Math.floor(rest / 62);
  }
  return digits;
};
