/**
 * Visitor tokens, signed by hand as a library in another language would sign them.
 */
import { assert, it } from "@effect/vitest";
import {
  ChatbotId,
  Access,
  defaultSettings,
  generateKey,
  keyRecord,
  signingSecretOf,
} from "@parley/core";
import { ChatbotDirectory, grantOf } from "@parley/core/ports";
import { longestLife, makeVisitorTokens, signVisitorToken } from "@parley/http";
import { Effect, Layer, Redacted } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { TestClock } from "effect/testing";
import { createHmac, createSign, generateKeyPairSync } from "node:crypto";

const chatbot = {
  id: ChatbotId.make(1),
  name: "Bot",
  description: "",
  workspaceName: "Workspace",
  settings: defaultSettings,
};

/** The store's time at the start of a test. The process's own clock, a `TestClock`, starts in 1970. */
const storeNow = Date.parse("2026-05-06T07:08:09Z");
const now = storeNow / 1000;

const encode = (part: object | string) =>
  Buffer.from(typeof part === "string" ? part : JSON.stringify(part)).toString("base64url");

const join = (
  header: object | string,
  payload: object | string,
  secret: string,
  hash = "sha256",
) => {
  const text = `${encode(header)}.${encode(payload)}`;
  return `${text}.${createHmac(hash, secret).update(text).digest("base64url")}`;
};

const newKey = Effect.map(Effect.provide(generateKey, SecureRandom.layerWebCrypto), Redacted.value);

/** Builds `Access` for a key that signs tokens and a key that does not, and records its look-ups. */
const setUp = Effect.fnUntraced(function* () {
  const [key, plain] = [yield* newKey, yield* newKey];
  const records = yield* Effect.forEach(
    [
      [key, { signingSecret: yield* signingSecretOf(key) }],
      [plain, {}],
    ] as const,
    ([text, more]) => keyRecord(text, more),
  ).pipe(Effect.provide(Digest.layerWebCrypto));
  const lookUps: Array<string> = [];
  const layer = Access.layer.pipe(
    Layer.provide([
      Digest.layerWebCrypto,
      Layer.succeed(
        ChatbotDirectory,
        ChatbotDirectory.of({
          find: (id) =>
            Effect.map(
              TestClock.testClockWith((clock) => clock.currentTimeMillis),
              (elapsed) => {
                lookUps.push(id);
                const record = records.find((candidate) => candidate.id === id);
                return record === undefined ? null : grantOf(record, chatbot, storeNow + elapsed);
              },
            ),
          recordUse: () => Effect.void,
        }),
      ),
    ]),
  );
  const [record, plainRecord] = records;
  const kid = record!.id;
  const secret = createHmac("sha256", key).update("parley-visitor").digest("hex");
  return { key, kid, layer, lookUps, plain: plainRecord!, plainText: plain, secret };
});

const tokens = makeVisitorTokens();
const authenticate = (credential: string) =>
  Access.use((access) => access.authenticate(credential, { tokens }));
const outcome = (credential: string) =>
  Effect.match(authenticate(credential), {
    onFailure: ({ _tag }) => _tag,
    onSuccess: ({ visitor }) => visitor,
  });

it.effect(
  "a token gives its key's access, limited to one user, and is checked against the store's clock",
  () =>
    Effect.gen(function* () {
      const { kid, layer, secret } = yield* setUp();
      yield* Effect.gen(function* () {
        const header = { alg: "HS256", kid };
        for (const sub of ["a", "😀".repeat(60), "line\nbreak\u001f"]) {
          const principal = yield* authenticate(join(header, { sub, exp: now + 900 }, secret));
          const scopes = ["read", "write", "ask"] as const;
          assert.deepStrictEqual(principal, { apiKeyId: kid, scopes, chatbot, visitor: sub });
        }
        for (const [scope, expected] of [
          ["read", ["read"]],
          ["ask read", ["read", "ask"]],
          ["admin read *", ["read"]],
          ["", []],
        ] as const) {
          const token = join(header, { sub: "a", exp: now + 900, scope }, secret);
          assert.deepStrictEqual((yield* authenticate(token)).scopes, expected);
        }
        const expiresAt = new Date(storeNow + 900_000);
        const signed = yield* signVisitorToken({
          keyId: kid,
          signingSecret: secret,
          visitor: "b",
          expiresAt,
          scopes: ["ask"],
        });
        const { scopes, visitor } = yield* authenticate(signed);
        assert.deepStrictEqual([scopes, visitor], [["ask"], "b"]);
      }).pipe(Effect.provide(layer));
    }),
);

it.effect("a signer's clock may be off by a minute, and a token is valid for at most a day", () =>
  Effect.gen(function* () {
    const { kid, layer, secret } = yield* setUp();
    yield* Effect.gen(function* () {
      const header = { alg: "HS256", kid };
      const at = (claims: object) => outcome(join(header, { sub: "a", ...claims }, secret));
      const day = longestLife;
      assert.strictEqual(yield* at({ exp: now + day + 59 }), "a");
      assert.strictEqual(yield* at({ exp: now + day + 61 }), "KeyRejected");
      assert.strictEqual(yield* at({ exp: now - 59 }), "a");
      assert.strictEqual(yield* at({ exp: now - 61 }), "KeyRejected");
      assert.strictEqual(yield* at({ exp: now + 900, nbf: now + 59 }), "a");
      assert.strictEqual(yield* at({ exp: now + 900, nbf: now + 61 }), "KeyRejected");
      const short = join(header, { sub: "a", exp: now + 10 }, secret);
      yield* TestClock.adjust("69 seconds");
      assert.strictEqual(yield* outcome(short), "a");
      yield* TestClock.adjust("2 seconds");
      assert.strictEqual(yield* outcome(short), "KeyRejected");
    }).pipe(Effect.provide(layer));
  }),
);

it.effect("operators can learn what is wrong with a rejected credential", () =>
  Effect.gen(function* () {
    const { kid, layer, secret } = yield* setUp();
    const header = { alg: "HS256", kid };
    const good = { sub: "a", exp: now + 900 };
    const flawed = [
      ["malformed", "a password"],
      ["unknown", (yield* setUp()).key],
      ["signature", join(header, good, "0".repeat(64))],
      ["exp", join(header, { ...good, exp: now - 61 }, secret)],
      ["exp", join(header, { ...good, exp: now + 2 * longestLife }, secret)],
      ["exp", join(header, { sub: "a" }, secret)],
      ["nbf", join(header, { ...good, nbf: now + 61 }, secret)],
      ["sub", join(header, { exp: now + 900 }, secret)],
      ["sub", join(header, { ...good, sub: "" }, secret)],
      ["scope", join(header, { ...good, scope: ["read"] }, secret)],
    ] as const;
    yield* Effect.gen(function* () {
      for (const [reason, credential] of flawed)
        assert.deepInclude(yield* Effect.flip(authenticate(credential)), { reason }, credential);
    }).pipe(Effect.provide(layer));
  }),
);

it.effect("a forged token is rejected like a wrong key", () =>
  Effect.gen(function* () {
    const { key, kid, layer, plain, plainText, secret } = yield* setUp();
    const header = { alg: "HS256", kid };
    const claims = { sub: "a", exp: now + 900 };
    const good = join(header, claims, secret);
    const [head, body, signature] = good.split(".") as [string, string, string];
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2048 });
    const rsa = `${encode({ ...header, alg: "RS256" })}.${encode(claims)}`;
    const pem = publicKey.export({ type: "spki", format: "pem" }).toString();
    const changed = signature[0] === "A" ? `B${signature.slice(1)}` : `A${signature.slice(1)}`;
    const plainSecret = createHmac("sha256", plainText).update("parley-visitor").digest("hex");
    const forged: Readonly<Record<string, string>> = {
      "no algorithm": `${encode({ ...header, alg: "none" })}.${encode(claims)}.`,
      "no algorithm, with a signature": join({ ...header, alg: "none" }, claims, secret),
      "algorithm None": join({ ...header, alg: "None" }, claims, secret),
      HS512: join({ ...header, alg: "HS512" }, claims, secret, "sha512"),
      HS384: join({ ...header, alg: "HS384" }, claims, secret, "sha384"),
      "HS512 in the header alone": join({ ...header, alg: "HS512" }, claims, secret),
      RS256: `${rsa}.${createSign("sha256").update(rsa).sign(privateKey, "base64url")}`,
      "a public key as the secret": join(header, claims, pem),
      "the key's text as the secret": join(header, claims, key),
      "the secret's bytes": join(header, claims, Buffer.from(secret, "hex").toString("latin1")),
      "the secret in upper case": join(header, claims, secret.toUpperCase()),
      "an empty secret": join(header, claims, ""),
      "the stand-in for a missing secret": join(
        { ...header, kid: "zzzzzzzzzzzz" },
        claims,
        "0".repeat(64),
      ),
      "the stand-in, for a key that signs no tokens": join(
        { ...header, kid: plain.id },
        claims,
        "0".repeat(64),
      ),
      "a key that signs no tokens": join({ ...header, kid: plain.id }, claims, plainSecret),
      "a foreign kid": join({ ...header, kid: plain.id }, claims, secret),
      "an unknown kid": join({ ...header, kid: "zzzzzzzzzzzz" }, claims, secret),
      "no kid": join({ alg: "HS256" }, claims, secret),
      "a kid that is not a string": join({ ...header, kid: [kid] }, claims, secret),
      "a kid that is a path": join({ ...header, kid: `../${kid}` }, claims, secret),
      "no exp": join(header, { sub: "a" }, secret),
      "an exp that is a string": join(header, { ...claims, exp: `${now + 900}` }, secret),
      "an exp in milliseconds": join(header, { ...claims, exp: (now + 900) * 1000 }, secret),
      "an exp too large for a number": join(header, '{"sub":"a","exp":1e999}', secret),
      "no sub": join(header, { exp: now + 900 }, secret),
      "an empty sub": join(header, { ...claims, sub: "" }, secret),
      "a sub of 61 characters": join(header, { ...claims, sub: "x".repeat(61) }, secret),
      "a sub with NUL": join(header, { ...claims, sub: "a\0" }, secret),
      "a sub with a lone surrogate": join(header, '{"sub":"\\ud83d","exp":4e9}', secret),
      "a sub that is a number": join(header, { ...claims, sub: 7 }, secret),
      "a sub that is null": join(header, { ...claims, sub: null }, secret),
      "a scope that is a list": join(header, { ...claims, scope: ["read"] }, secret),
      "another signature": `${head}.${body}.${changed}`,
      "no signature": `${head}.${body}.`,
      "another user": `${head}.${encode({ ...claims, sub: "b" })}.${signature}`,
      "another header": `${encode({ ...header, typ: "x" })}.${body}.${signature}`,
      "two parts": `${head}.${body}`,
      "four parts": `${good}.${signature}`,
      "an encrypted token": `${good}.${signature}.${signature}`,
      "a critical extension": join({ ...header, crit: ["x"], x: 1 }, claims, secret),
      "an unencoded payload": join({ ...header, crit: ["b64"], b64: false }, claims, secret),
      "claims that are not an object": join(header, '["a"]', secret),
      "claims that are not JSON": join(header, "{", secret),
      "a header that is not JSON": join("{", claims, secret),
      padding: `${head}.${body}.${signature}=`,
      "white space": ` ${good}`,
      "a line break": `${head}.${body}\n.${signature}`,
      "a scheme": `Bearer ${good}`,
    };
    yield* Effect.gen(function* () {
      assert.strictEqual(yield* outcome(good), "a");
      for (const [what, token] of Object.entries(forged)) {
        assert.strictEqual(yield* outcome(token), "KeyRejected", what);
      }
    }).pipe(Effect.provide(layer));
  }),
);

it.effect("all tokens of a key share its look-up, and malformed tokens cause no look-up", () =>
  Effect.gen(function* () {
    const { key, kid, layer, lookUps, secret } = yield* setUp();
    yield* Effect.gen(function* () {
      for (let n = 0; n < 50; n++) {
        const claims = { sub: `user ${n}`, exp: now + 900 + n };
        yield* outcome(join({ alg: "HS256", kid }, claims, n % 2 === 0 ? secret : "wrong"));
      }
      yield* authenticate(key);
      assert.deepStrictEqual(lookUps, [kid]);
      yield* outcome(join({ alg: "HS256", kid: "zzzzzzzzzzzz" }, { sub: "a" }, "wrong"));
      yield* outcome(join({ alg: "HS256", kid: "zzzzzzzzzzzz" }, { sub: "b" }, "wrong"));
      assert.deepStrictEqual(lookUps, [kid, "zzzzzzzzzzzz"]);
      for (const malformed of ["a.b.c", `${encode({ alg: "HS256", kid })}..`, "...", "x".repeat(9)])
        yield* outcome(malformed);
      assert.strictEqual(lookUps.length, 2);
    }).pipe(Effect.provide(layer));
  }),
);

it.effect("without the option `tokens`, a token is rejected as a malformed key", () =>
  Effect.gen(function* () {
    const { kid, layer, secret } = yield* setUp();
    const token = join({ alg: "HS256", kid }, { sub: "a", exp: now + 900 }, secret);
    const rejected = Effect.flip(Access.use((access) => access.authenticate(token)));
    assert.strictEqual((yield* Effect.provide(rejected, layer))._tag, "KeyRejected");
  }),
);
