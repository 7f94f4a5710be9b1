/**
 * Authentication: from the text of an API key to the chatbot that it opens (section 5).
 */
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Schedule, Stream } from "effect";
import { Digest, Mac } from "effect/crypto";
import * as RateLimiter from "effect/persistence/RateLimiter";
import { hashKey, keyId, type Scope } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatbotDirectory } from "../ports/ChatbotDirectory.ts";
import { KeyRejected, RateExceeded, type StorageUnavailable } from "../model/Errors.ts";
import { makeKeyRequests } from "./Telemetry.ts";

/** The chatbot and the scopes that a valid key opens. */
export interface Principal {
  readonly keyId: string;
  readonly scopes: ReadonlyArray<Scope>;
  readonly chatbot: Chatbot;
}

/** How many keys the process remembers. */
const capacity = 10_000;

/** How long a process takes at most to notice a change whose notification was lost. */
const staleness = Duration.seconds(1);

/** How long after its last look-up a key counts where the store is away, in milliseconds. */
const memory = 60_000;

/** How often the process writes which keys were used. */
const useInterval = Duration.minutes(1);

/** Milliseconds of a clock that nobody sets. */
const elapsedMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6);

interface ValidGrant {
  readonly expiresAt: number;
  readonly ratePerMinute: number | null | undefined;
  readonly principal: Principal;
}

const make = Effect.gen(function* () {
  const directory = yield* ChatbotDirectory;
  const digest = yield* Digest.Digest;
  const noHash = new Uint8Array(32);

  /** The last valid grants by the key's text, those that were looked up last at the end. */
  const remembered = new Map<string, { readonly until: number; readonly grant: ValidGrant }>();
  const open = Effect.fnUntraced(function* (key: string) {
    const id = keyId(key);
    if (id === null) return yield* new KeyRejected();
    // Before the look-up: what that takes is time of the key, too.
    const at = yield* elapsedMillis;
    const grant = yield* directory.open(id);
    const hash = yield* Effect.provideService(hashKey(key), Digest.Digest, digest);
    const isGenuine = Mac.timingSafeEqual(hash, grant?.hash ?? noHash);
    const staleAt = (yield* elapsedMillis) + Duration.toMillis(staleness);
    remembered.delete(key);
    if (!isGenuine || grant === null) return { staleAt, grant: null };
    const { chatbot, expiresInMillis, ratePerMinute, scopes } = grant;
    const principal: Principal = { keyId: id, scopes, chatbot };
    const expiresAt = at + (expiresInMillis ?? Infinity);
    const valid = { expiresAt, ratePerMinute, principal };
    remembered.set(key, { until: Math.min(at + memory, expiresAt), grant: valid });
    if (remembered.size > capacity) remembered.delete(remembered.keys().next().value!);
    return { staleAt, grant: valid };
  });

  // By the key's text: at most one request a second hashes a key and looks it up, whether it is valid or revoked.
  // A malformed key fails and takes no room.
  const grants = yield* Cache.makeWith(open, {
    capacity,
    timeToLive: (exit) => (Exit.isFailure(exit) ? Duration.zero : staleness),
  });
  yield* directory.changed.pipe(
    Stream.runForEach(() => Cache.invalidateAll(grants)),
    Effect.forkScoped,
  );
  /** The cache goes by the machine's clock: after that was set back, it would keep a revoked key for as long. */
  const grantOf = Effect.fnUntraced(function* (key: string) {
    const cached = yield* Cache.get(grants, key);
    const now = yield* elapsedMillis;
    const { grant } = now < cached.staleAt ? cached : yield* Cache.refresh(grants, key);
    return grant === null || grant.expiresAt <= now ? null : grant;
  });

  const recall = Effect.fnUntraced(function* (key: string, error: StorageUnavailable) {
    const now = yield* elapsedMillis;
    const { grant, until } = remembered.get(key) ?? { grant: null, until: 0 };
    return now < until ? grant : yield* error;
  });

  const limiter = yield* Effect.provide(RateLimiter.make, RateLimiter.layerStoreMemory);
  const spend = (keyId: string, limit: number) =>
    limiter.consume({ key: keyId, limit, window: "1 minute", algorithm: "token-bucket" }).pipe(
      Effect.mapError(({ reason }) => {
        const wait = reason._tag === "RateLimitExceeded" ? reason.retryAfter : Duration.zero;
        const retryAfterSeconds = Math.ceil(Duration.toSeconds(wait));
        return new RateExceeded({ keyId, retryAfterSeconds });
      }),
    );

  const countRequest = yield* makeKeyRequests;
  let used = new Set<string>();
  const writeUse = Effect.suspend(() => {
    if (used.size === 0) return Effect.void;
    const ids = used;
    used = new Set();
    return Effect.catchCause(directory.used([...ids]), (cause) => {
      for (const id of ids) used.add(id);
      return Effect.logDebug("The use of keys could not be written", cause);
    });
  });
  yield* Effect.addFinalizer(() => Effect.timeoutOption(writeUse, "2 seconds"));
  yield* writeUse.pipe(Effect.repeat(Schedule.spaced(useInterval)), Effect.forkScoped);

  return {
    /**
     * Checks a key (section 5). A malformed one costs no look-up; every other rejection does the same work. Fails with
     * `RateExceeded` beyond the key's rate, which counts the calls in this process.
     *
     * @param recalls whether a key that was valid within the last minute counts while the store is away; its expiry
     *   counts, too, but not a revocation. `false` by default.
     */
    authenticate: Effect.fnUntraced(function* (key: string, recalls = false) {
      const grant = yield* recalls
        ? Effect.catchTag(grantOf(key), "StorageUnavailable", (error) => recall(key, error))
        : grantOf(key);
      if (grant === null) return yield* new KeyRejected();
      const { principal, ratePerMinute } = grant;
      used.add(principal.keyId);
      countRequest(principal.keyId, 0, 1);
      if (ratePerMinute != null) yield* spend(principal.keyId, ratePerMinute);
      return principal;
    }),
  };
});

/** Checks API keys. */
export class Access extends Context.Service<Access>()("@parley/core/Access", { make }) {
  static readonly layer = Layer.effect(Access, Access.make);
}
