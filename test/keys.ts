import { generateKey } from "@parley/core";
import { Effect, Redacted } from "effect";
import { SecureRandom } from "effect/crypto";

/** Generates API keys. */
export const makeKeys = (count: number): Promise<ReadonlyArray<string>> =>
  Effect.replicateEffect(Effect.map(generateKey, Redacted.value), count).pipe(
    Effect.provide(SecureRandom.layerWebCrypto),
    Effect.runPromise,
  );
