/**
 * Digests by OpenSSL in the calling thread: for a key of fifty bytes far quicker than a trip to WebCrypto's thread
 * pool.
 */
import { Effect, Layer } from "effect";
import { Digest } from "effect/crypto";
import { createHash } from "node:crypto";

const hash = ({ name }: Digest.Algorithm, data: Uint8Array) =>
  createHash(name.replace("-", "")).update(data);

export const layerDigest: Layer.Layer<Digest.Digest> = Layer.succeed(Digest.Digest, {
  digest: (algorithm, data) => Effect.sync(() => hash(algorithm, data).digest()),
  digestHex: (algorithm, data) => Effect.sync(() => hash(algorithm, data).digest("hex")),
});
