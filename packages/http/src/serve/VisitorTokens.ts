/**
 * Visitor tokens: JWTs that a library in any language can create, signed with HS256 and a key's signing secret.
 */
import { UserRef, type Scope, type VisitorTokens } from "@parley/core";
import { Duration, Effect, Schema } from "effect";
import { decodeProtectedHeader, jwtVerify, SignJWT } from "jose";

/** How far off a signer's clock may be, in seconds. */
const skew = 60;

/** The maximum lifetime of a token, in seconds. */
export const longestLife = Duration.toSeconds("24 hours");

const isSubject = Schema.is(UserRef.check(Schema.isNonEmpty()));

const encoder = new TextEncoder();
const importSecret = (secret: string) =>
  crypto.subtle.importKey("raw", encoder.encode(secret), { name: "HMAC", hash: "SHA-256" }, false, [
    "sign",
    "verify",
  ]);

/** Creates the token reader for `Access`. The reader imports a secret once for each object that holds it. */
export const makeVisitorTokens = (): VisitorTokens => {
  const secrets = new WeakMap<object, Promise<CryptoKey>>();
  return {
    keyId: (token) => {
      // In base64url, the 32 bytes of a signature are 43 characters.
      if (!/^[\w-]+\.[\w-]+\.[\w-]{43}$/.test(token)) return null;
      try {
        const { alg, kid } = decodeProtectedHeader(token);
        return alg === "HS256" && typeof kid === "string" && isKeyId.test(kid) ? kid : null;
      } catch {
        return null;
      }
    },
    verify: (token, key, now, lateMillis = 0) =>
      Effect.promise(async () => {
        const secretImport = secrets.get(key) ?? importSecret(key.signingSecret);
        secrets.set(key, secretImport);
        const secret = await secretImport;
        const verification = await jwtVerify(token, secret, {
          algorithms: ["HS256"],
          clockTolerance: skew,
          currentDate: new Date(now.getTime() - lateMillis),
        }).catch((error: object) => {
          const claim = "claim" in error ? error.claim : "signature";
          return claim === "exp" || claim === "nbf" ? claim : "signature";
        });
        if (typeof verification === "string") return verification;
        const { exp, scope, sub } = verification.payload;
        const latest = now.getTime() / 1000 + longestLife + skew;
        if (typeof exp !== "number" || exp > latest) return "exp";
        if (!isSubject(sub)) return "sub";
        if (scope !== undefined && typeof scope !== "string") return "scope";
        return { visitor: sub, scopes: scope?.split(" ") ?? null };
      }),
  };
};

const isKeyId = /^[0-9A-Za-z]{12}$/;

/**
 * Signs a token for a visitor. The token is valid only if it expires within 24 hours. Without `scopes`, it has all of
 * the key's scopes.
 */
export const signVisitorToken = (token: {
  readonly keyId: string;
  readonly signingSecret: string;
  readonly visitor: string;
  readonly expiresAt: Date;
  readonly scopes?: ReadonlyArray<Scope>;
}): Effect.Effect<string> =>
  Effect.promise(async () =>
    new SignJWT({ scope: token.scopes?.join(" ") })
      .setProtectedHeader({ alg: "HS256", typ: "JWT", kid: token.keyId })
      .setSubject(token.visitor)
      .setExpirationTime(token.expiresAt)
      .sign(await importSecret(token.signingSecret)),
  );
