/**
 * Authentication: finds what an API key or a visitor token gives access to, enforces rate limits, and admits anonymous
 * visitors.
 */
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Stream } from "effect";
import { Digest, Mac } from "effect/crypto";
import { admitsAnonymous, hashKey, keyId, type KeyRecord, type Scope } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatbotDirectory, type Grant } from "../ports/ChatbotDirectory.ts";
import { KeyRejected, RateExceeded, type StorageUnavailable } from "../model/Errors.ts";
import { BackgroundSleep } from "./BackgroundSleep.ts";
import { makeKeyRequests } from "./Telemetry.ts";

type Refusal = KeyRejected | RateExceeded;

/** What a valid credential gives access to. */
export interface Principal {
  readonly apiKeyId: string;
  readonly scopes: ReadonlyArray<Scope>;
  readonly chatbot: Chatbot;
  /** The only user whose chats are accessible; `null` or absent if every user's chats are. */
  readonly visitor?: string | null;
  /** How many language-model tokens the key may spend on asks per day (UTC); absent if there is no limit. */
  readonly tokensPerDay?: number;
}

/** The claims of a visitor token. */
export interface VisitorClaims {
  readonly visitor: string;
  /** The scopes that the token names; `null` for all scopes of its key. */
  readonly scopes: ReadonlyArray<string> | null;
}

/** What the pages that serve a key's widget need to know. */
export interface Widget extends Pick<KeyRecord, "origins"> {
  readonly chatbot: Chatbot;
}

/** Reads visitor tokens, whose format an adapter defines. */
export interface VisitorTokens {
  /** Returns the id of the key that the token names as its signer; `null` if the string is not a token. */
  readonly keyId: (token: string) => string | null;
  /**
   * Returns the claims of a token that was signed with this secret and is valid at `now`, or that expired at most
   * `lateMillis` (0 by default) earlier; `null` for any other token. A wrong secret takes as long as the right one.
   */
  readonly verify: (
    token: string,
    key: { readonly signingSecret: string },
    now: Date,
    lateMillis?: number,
  ) => Effect.Effect<VisitorClaims | null>;
}

/** The maximum number of keys that the process caches. */
const capacity = 10_000;

/** The maximum number of rate buckets for visitors, and the same number again for new visitors. */
const visitorCapacity = 50_000;

/** How many new visitors the process admits per minute from one network, and how many with one key. */
const newVisitors = { network: 10, key: 300 };

/** The prefix of every anonymous visitor's `userRef`. */
const anonymousPrefix = "visitor-";

/** How long an anonymous visitor's token is valid, and for how long after that it can be renewed, in milliseconds. */
const anonymousLife = 3_600_000;
const renewableFor = 30 * 24 * 3_600_000;

/** The maximum age of a cached look-up, in case a change notification is lost. */
const staleness = Duration.seconds(1);

/** How long after its last look-up a key is accepted without the store if `recalls` is set, in milliseconds. */
const recallFor = 60_000;

/** How often the process records which keys were used. */
const useInterval = Duration.minutes(1);

/** The time on a monotonic clock, in milliseconds. */
const elapsedMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6);

/** The result of looking up a key in the store. All times except `epoch` are on the monotonic clock. */
interface KeyLookUp {
  readonly at: number;
  readonly grant: Grant | null;
  /** What the key itself gives access to; `null` for an unknown or revoked key. */
  readonly principal: Principal | null;
  readonly staleAt: number;
  readonly expiresAt: number;
  /** When the monotonic clock started, according to the store's clock, in milliseconds since the Unix epoch. */
  readonly epoch: number;
  readonly signer: { readonly signingSecret: string };
  /**
   * Maps strings that contain the key's id to whether they are the key. A `Map` compares hash codes before it compares
   * strings, so the duration of `get` reveals nothing about the key.
   */
  readonly texts: Map<string, boolean>;
}

/** A placeholder secret for keys that are unknown or revoked, or sign no tokens. Tokens signed with it are rejected. */
const noSigner = { signingSecret: "0".repeat(64) };

const make = Effect.gen(function* () {
  const directory = yield* ChatbotDirectory;
  const digest = yield* Digest.Digest;
  const noHash = new Uint8Array(32);

  /**
   * The latest look-up of each known key, keyed by the key's id, oldest first. `findKey` uses a look-up while it is
   * fresh, which is cheaper than the cache; `recall` uses it while the store is unavailable. All other requests go
   * through the cache `keys`, in which concurrent requests share a look-up.
   */
  const lastLookUps = new Map<string, KeyLookUp>();
  const lookUp = Effect.fnUntraced(function* (
    id: string,
  ): Effect.fn.Return<KeyLookUp, StorageUnavailable> {
    // The clock is read before the look-up, so that a slow look-up does not extend the key's validity.
    const at = yield* elapsedMillis;
    const grant = yield* directory.find(id);
    const now = grant?.nowMillis ?? (yield* Clock.currentTimeMillis);
    const keyLookUp = {
      at,
      grant,
      principal: grant && toPrincipal(id, grant, { visitor: grant.visitor ?? null, scopes: null }),
      staleAt: (yield* elapsedMillis) + Duration.toMillis(staleness),
      expiresAt: at + (grant?.expiresInMillis ?? Infinity),
      epoch: now - at,
      signer: grant?.signingSecret == null ? noSigner : { signingSecret: grant.signingSecret },
      texts: new Map(),
    };
    lastLookUps.delete(id);
    if (grant !== null) lastLookUps.set(id, keyLookUp);
    if (lastLookUps.size > capacity) lastLookUps.delete(lastLookUps.keys().next().value!);
    return keyLookUp;
  });

  // Keyed by the key's id. Unless a change is notified, each key is looked up at most once a second, whether it is
  // valid, revoked or unknown. Failed look-ups are not cached.
  const keys = yield* Cache.makeWith(lookUp, {
    capacity,
    timeToLive: (exit) => (Exit.isFailure(exit) ? Duration.zero : staleness),
  });
  let changedAt = -Infinity;
  const forget = Effect.flatMap(elapsedMillis, (now) => {
    changedAt = now;
    return Cache.invalidateAll(keys);
  });
  yield* directory.changes.pipe(
    Stream.runForEach(() => forget),
    Effect.forkScoped,
  );
  /**
   * Looks up a key through the cache, in which concurrent requests share a look-up. The cache uses the system clock: if
   * that clock is set back, the cache keeps a revoked key for that much longer, so the age of a look-up is also checked
   * on the monotonic clock.
   */
  const lookUpOnce = (id: string) =>
    Effect.flatMap(Cache.get(keys, id), (keyLookUp) =>
      Effect.flatMap(elapsedMillis, (now) =>
        now < keyLookUp.staleAt ? Effect.succeed(keyLookUp) : Cache.refresh(keys, id),
      ),
    );
  const recall = Effect.fnUntraced(function* (id: string, error: StorageUnavailable) {
    const key = lastLookUps.get(id);
    const until = key === undefined ? 0 : Math.min(key.at + recallFor, key.expiresAt);
    return (yield* elapsedMillis) < until ? key! : yield* error;
  });
  /** Returns the last look-up while it is fresh, which is cheaper than the cache; otherwise looks up the key. */
  const findKey = (id: string, recalls = false) =>
    Effect.flatMap(elapsedMillis, (now) => {
      const key = lastLookUps.get(id);
      if (key !== undefined && changedAt < key.at && now < key.staleAt) return Effect.succeed(key);
      return recalls
        ? Effect.catchTag(lookUpOnce(id), "StorageUnavailable", (error) => recall(id, error))
        : lookUpOnce(id);
    });

  const countForKey = makeRates(capacity);
  const countForVisitor = makeRates(visitorCapacity);
  const countNewVisitor = makeRates(visitorCapacity);

  const countRequest = yield* makeKeyRequests;
  let usedIds = new Set<string>();
  const writeUse = Effect.suspend(() => {
    if (usedIds.size === 0) return Effect.void;
    const ids = usedIds;
    usedIds = new Set();
    return Effect.catchCause(directory.recordUse([...ids]), (cause) => {
      for (const id of ids) usedIds.add(id);
      return Effect.logDebug("Could not record which keys were used", cause);
    });
  });
  yield* Effect.addFinalizer(() => Effect.timeoutOption(writeUse, "2 seconds"));
  const sleep = yield* BackgroundSleep;
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(writeUse, sleep(useInterval))));

  /** Checks the key's expiry and rates, and records its use. `principal` is `null` if the credential is wrong. */
  const admit = (
    id: string,
    { expiresAt, grant }: KeyLookUp,
    principal: Principal | null,
  ): Effect.Effect<Principal, Refusal> =>
    Effect.flatMap(elapsedMillis, (now): Effect.Effect<Principal, Refusal> => {
      if (grant === null || principal === null || expiresAt <= now) {
        return Effect.fail(new KeyRejected());
      }
      usedIds.add(id);
      countRequest(id, 0, 1);
      const { ratePerMinute, visitorRatePerMinute } = grant;
      const { visitor } = principal;
      let admission: Effect.Effect<Principal, RateExceeded> = Effect.succeed(principal);
      if (ratePerMinute != null) {
        admission = Effect.andThen(countForKey(id, ratePerMinute, id), admission);
      }
      // The visitor's rate is checked first, so that a request that exceeds it does not count towards the key's rate.
      if (visitorRatePerMinute != null && visitor != null) {
        admission = Effect.andThen(
          countForVisitor(`${id}/${visitor}`, visitorRatePerMinute, id),
          admission,
        );
      }
      return admission;
    });

  /** Hashes each string once per look-up of its key, unless many wrong strings contain the key's id. */
  const hashAndAdmit = Effect.fnUntraced(function* (id: string, text: string, key: KeyLookUp) {
    const { grant, principal, texts } = key;
    const hash = yield* Effect.provideService(hashKey(text), Digest.Digest, digest);
    const isGenuine = Mac.timingSafeEqual(hash, grant?.hash ?? noHash) && grant !== null;
    if (isGenuine || texts.size < 8) texts.set(text, isGenuine);
    return yield* admit(id, key, isGenuine ? principal : null);
  });

  const authenticateVisitor = Effect.fnUntraced(function* (
    token: string,
    tokens: VisitorTokens | undefined,
    recalls: boolean,
  ) {
    const id = tokens?.keyId(token) ?? null;
    if (id === null) return yield* new KeyRejected();
    const key = yield* findKey(id, recalls);
    const { epoch, grant, signer } = key;
    const claims = yield* tokens!.verify(token, signer, new Date(epoch + (yield* elapsedMillis)));
    const isSigned = claims !== null && grant !== null && signer !== noSigner;
    return yield* admit(id, key, isSigned ? toPrincipal(id, grant, claims) : null);
  });

  /** Nearly every request calls this, so the common case, a known key, runs without a generator. */
  const authenticate = (
    credential: string,
    {
      recalls = false,
      tokens,
    }: { readonly recalls?: boolean; readonly tokens?: VisitorTokens } = {},
  ): Effect.Effect<Principal, Refusal | StorageUnavailable> => {
    const id = keyId(credential);
    if (id === null) return authenticateVisitor(credential, tokens, recalls);
    return Effect.flatMap(findKey(id, recalls), (key): Effect.Effect<Principal, Refusal> => {
      const isGenuine = key.texts.get(credential);
      return isGenuine === undefined
        ? hashAndAdmit(id, credential, key)
        : admit(id, key, isGenuine ? key.principal : null);
    });
  };

  const widget = Effect.fnUntraced(function* (keyId: string) {
    const { expiresAt, grant } = yield* findKey(keyId);
    if (grant === null || expiresAt <= (yield* elapsedMillis)) return null;
    const { chatbot, origins = [] } = grant;
    return { chatbot, origins } satisfies Widget;
  });

  const admitVisitor = Effect.fnUntraced(function* (
    id: string,
    tokens: VisitorTokens,
    network: string,
    former: string | undefined,
  ) {
    const { epoch, expiresAt, grant, signer } = yield* findKey(id);
    const now = yield* elapsedMillis;
    if (grant === null || !admitsAnonymous(grant) || expiresAt <= now) return null;
    const currentTime = new Date(epoch + now);
    let visitor = `${anonymousPrefix}${crypto.randomUUID()}`;
    if (former === undefined) {
      // The network's limit is checked first, so that a visitor who exceeds it does not count towards the key's limit.
      yield* countNewVisitor(`${id}/${network}`, newVisitors.network, id);
      yield* countNewVisitor(id, newVisitors.key, id);
    } else {
      const claims =
        tokens.keyId(former) === id
          ? yield* tokens.verify(former, signer, currentTime, renewableFor)
          : null;
      // A token that the site's backend signed for a known visitor can be renewed only by that backend.
      if (claims?.visitor.startsWith(anonymousPrefix) !== true) return yield* new KeyRejected();
      visitor = claims.visitor;
      yield* countForVisitor(`${id}/${visitor}`, grant.visitorRatePerMinute!, id);
    }
    const end = Math.min(now + anonymousLife, expiresAt);
    return { visitor, signingSecret: signer.signingSecret, expiresAt: new Date(epoch + end) };
  });

  return {
    /**
     * Checks a key or, with `tokens`, a visitor token. A malformed credential is rejected without a look-up; for any
     * other, the work does not depend on why it is rejected. Fails with `RateExceeded` if the visitor or the key
     * exceeds its rate; only calls in this process count.
     *
     * If `recalls` is `true`, a key that was looked up within the last minute is accepted while the store is
     * unavailable. Its expiry is checked, but a revocation goes unnoticed. The default is `false`.
     */
    authenticate,
    /** Returns the widget of a valid key; `null` if the key is unknown, expired or revoked. */
    widget,
    /**
     * Returns the claims of a token for an anonymous visitor, and the secret to sign it with; `null` if the key is not
     * valid or admits no anonymous visitors. Without `former`, the visitor is new. `former` is an earlier token of an
     * anonymous visitor, who keeps the same `userRef`; it may have expired up to 30 days ago, and any other string
     * fails with `KeyRejected`. Fails with `RateExceeded` if the visitor exceeds their rate or, for a new visitor, if
     * this process has admitted 10 new visitors from the network or 300 with the key within a minute.
     */
    admitVisitor,
  };
});

/** Returns the principal for a credential that makes these claims and whose key has this grant. */
const toPrincipal = (
  apiKeyId: string,
  { chatbot, scopes, tokensPerDay }: Grant,
  {
    scopes: namedScopes,
    visitor,
  }: { readonly visitor: string | null; readonly scopes: VisitorClaims["scopes"] },
): Principal => ({
  apiKeyId,
  scopes: namedScopes === null ? scopes : scopes.filter((scope) => namedScopes.includes(scope)),
  chatbot,
  visitor,
  ...(tokensPerDay != null && { tokensPerDay }),
});

/**
 * Makes token buckets, keyed by name, each of which refills within a minute. Beyond `maxBuckets`, the bucket whose last
 * granted request is the oldest is dropped; a minute after that request it would be full anyway.
 */
const makeRates = (maxBuckets: number) => {
  const buckets = new Map<string, { readonly tokens: number; readonly at: number }>();
  return (name: string, ratePerMinute: number, apiKeyId: string) =>
    Effect.flatMap(elapsedMillis, (now) => {
      const { at, tokens } = buckets.get(name) ?? { at: now, tokens: ratePerMinute };
      const millisPerRequest = 60_000 / ratePerMinute;
      const available = Math.min(ratePerMinute, tokens + (now - at) / millisPerRequest);
      if (available < 1) {
        const retryAfterSeconds = Math.ceil(((1 - available) * millisPerRequest) / 1000);
        return new RateExceeded({ apiKeyId, retryAfterSeconds });
      }
      buckets.delete(name);
      buckets.set(name, { tokens: available - 1, at: now });
      if (buckets.size > maxBuckets) buckets.delete(buckets.keys().next().value!);
      return Effect.void;
    });
};

/** Checks API keys and visitor tokens, and admits anonymous visitors. */
export class Access extends Context.Service<Access>()("@parley/core/Access", { make }) {
  static readonly layer = Layer.effect(Access, Access.make);
}
