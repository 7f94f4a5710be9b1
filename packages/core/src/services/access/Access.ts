/**
 * Authentication: finds what an API key or a visitor token gives access to, enforces rate limits, and admits anonymous
 * visitors.
 */
import { Clock, Context, Duration, Effect, Layer } from "effect";
import { Digest, Mac } from "effect/crypto";
import { admitsAnonymous, hashKey, keyId, type KeyRecord, type Scope } from "../../model/ApiKey.ts";
import type { Chatbot } from "../../model/Chatbot.ts";
import { dayMillis } from "../../model/Day.ts";
import { ChatbotDirectory, type Grant } from "../../ports/ChatbotDirectory.ts";
import {
  KeyRejected,
  RateExceeded,
  type KeyFlaw,
  type StorageUnavailable,
  type TokenFlaw,
} from "../../model/Errors.ts";
import { BackgroundSleep } from "../BackgroundSleep.ts";
import { makeKeyRequests, operation } from "../Telemetry.ts";

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
   * `lateMillis` (0 by default) earlier; for any other token, what is wrong. A wrong secret takes as long as the right
   * one.
   */
  readonly verify: (
    token: string,
    key: { readonly signingSecret: string },
    now: Date,
    lateMillis?: number,
  ) => Effect.Effect<VisitorClaims | TokenFlaw>;
}

/**
 * The maximum number of look-ups that the process keeps, and of rate buckets for keys. Beyond it, the id that
 * was added first is dropped, so a flood of unknown ids repeats a valid key's look-up only once in 10,000 look-ups.
 */
const capacity = 10_000;

/** The maximum number of rate buckets for visitors, and the same number again for new visitors. */
const visitorCapacity = 50_000;

/**
 * How many new visitors the process admits with one key per minute: from one client's network, from each of two wider
 * networks around it, and in all. A provider gives a client up to 2^80 addresses, but hardly a part of each network.
 */
const newVisitors = { networks: [10, 40, 120], key: 300 };

/** The prefix of every anonymous visitor's `userRef`. */
const anonymousPrefix = "visitor-";

/** How long an anonymous visitor's token is valid, and for how long after that it can be renewed, in milliseconds. */
const anonymousLife = 3_600_000;
const renewableFor = 30 * dayMillis;

/**
 * How long after its start a look-up is used, in milliseconds on the monotonic clock: a system clock that is set back
 * does not keep a revoked key valid.
 */
const lookUpLife = 1_000;

/** The time on a monotonic clock, in milliseconds. */
const elapsedMillis = Clock.clockWith((clock) =>
  Effect.succeed(Number(clock.monotonicTimeNanosUnsafe()) / 1e6),
);

/** What a look-up in the store finds. All times except `epoch` are on the monotonic clock. */
interface StoredKey {
  /** `null` for an unknown or revoked key. */
  readonly grant: Grant | null;
  readonly isRevoked: boolean;
  readonly expiresAt: number;
  /** When the monotonic clock started, according to the store's clock, in milliseconds since the Unix epoch. */
  readonly epoch: number;
  readonly signer: { readonly signingSecret: string };
  /**
   * Maps strings that contain the key's id to what they give access to: `null` for a wrong key. A `Map` compares hash
   * codes before it compares strings, so the duration of `get` reveals nothing about the key.
   */
  readonly knownCredentials: Map<string, Principal | null>;
}

interface LookUp {
  readonly staleAt: number;
  /** Waits for a look-up in progress. */
  readonly result: Effect.Effect<StoredKey, StorageUnavailable>;
}

/** A placeholder secret for keys that are unknown or revoked, or sign no tokens. Tokens signed with it are rejected. */
const noSigner = { signingSecret: "0".repeat(64) };

const make = Effect.gen(function* () {
  const directory = yield* ChatbotDirectory;
  const digest = yield* Digest.Digest;
  const noHash = new Uint8Array(32);

  const readKey = (id: string, start: number) =>
    Effect.zipWith(directory.find(id), Clock.currentTimeMillis, (record, now): StoredKey => {
      const isRevoked = record?.isRevoked === true;
      const grant = isRevoked ? null : record;
      return {
        grant,
        isRevoked,
        // Counted from the start of the look-up, so that a slow one does not extend the key's validity.
        expiresAt: start + (grant?.expiresInMillis ?? Infinity),
        epoch: (grant?.nowMillis ?? now) - start,
        signer: grant?.signingSecret == null ? noSigner : { signingSecret: grant.signingSecret },
        knownCredentials: new Map(),
      };
    });

  /** The latest look-up of each key id. Concurrent requests share a look-up; it is cancelled only if they all end. */
  const lookUps = new Map<string, LookUp>();
  const startLookUp = Effect.fnUntraced(function* (id: string, now: number) {
    const drop = Effect.sync(() => lookUps.delete(id));
    const result = yield* Effect.cached(Effect.onError(readKey(id, now), () => drop));
    lookUps.set(id, { staleAt: now + lookUpLife, result });
    if (lookUps.size > capacity) lookUps.delete(lookUps.keys().next().value!);
    return yield* result;
  });
  const findKey = (id: string): Effect.Effect<StoredKey, StorageUnavailable> =>
    Effect.flatMap(elapsedMillis, (now) => {
      const lookUp = lookUps.get(id);
      return lookUp !== undefined && now < lookUp.staleAt ? lookUp.result : startLookUp(id, now);
    });

  const countForKey = makeRates(capacity);
  const countForVisitor = makeRates(visitorCapacity);
  const countForNetwork = makeRates(visitorCapacity);
  /** Counts a new visitor for the narrowest network first, so that its excess does not count for the wider ones. */
  const countNewVisitor = (id: string, networks: ReadonlyArray<string>, now: number) => {
    for (const [level, network] of networks.entries()) {
      const excess = countForNetwork(id, newVisitors.networks[level], now, `${level} ${network}`);
      if (excess !== null) return excess;
    }
    return countForNetwork(id, newVisitors.key, now);
  };

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
  yield* Effect.forkScoped(Effect.forever(Effect.andThen(writeUse, sleep(Duration.minutes(1)))));

  /** Checks the key's expiry and rates, and records its use. `principal` is `null` if the credential is wrong. */
  const admit = (
    id: string,
    { expiresAt, grant, isRevoked }: StoredKey,
    principal: Principal | null,
    flaw: KeyFlaw = "unknown",
  ): Effect.Effect<Principal, Refusal> =>
    Effect.flatMap(elapsedMillis, (now): Effect.Effect<Principal, Refusal> => {
      if (grant === null || principal === null || expiresAt <= now) {
        const state = isRevoked ? "revoked" : grant === null ? "unknown" : flaw;
        const reason = principal === null ? state : "expired";
        const key = grant === null && !isRevoked ? {} : { apiKeyId: id };
        return Effect.fail(new KeyRejected({ reason, ...key }));
      }
      usedIds.add(id);
      countRequest(id, 0, 1);
      const { visitor } = principal;
      const visitorRate = visitor == null ? null : grant.visitorRatePerMinute;
      // The visitor's rate is checked first, so that a request that exceeds it does not count towards the key's rate.
      const excess =
        countForVisitor(id, visitorRate, now, visitor) ?? countForKey(id, grant.ratePerMinute, now);
      return excess === null ? Effect.succeed(principal) : Effect.fail(excess);
    });

  /** Hashes each string once per look-up of its key, unless many wrong strings contain the key's id. */
  const hashAndAdmit = Effect.fnUntraced(function* (
    id: string,
    credential: string,
    key: StoredKey,
  ) {
    const { grant, knownCredentials } = key;
    const hash = yield* Effect.provideService(hashKey(credential), Digest.Digest, digest);
    const isGenuine = Mac.timingSafeEqual(hash, grant?.hash ?? noHash) && grant !== null;
    const principal = isGenuine ? toPrincipal(id, grant, grant.visitor ?? null, null) : null;
    if (isGenuine || knownCredentials.size < 8) knownCredentials.set(credential, principal);
    return yield* admit(id, key, principal);
  });

  const authenticateVisitor = Effect.fnUntraced(function* (token: string, tokens: VisitorTokens) {
    const id = tokens.keyId(token);
    if (id === null) return yield* new KeyRejected({ reason: "malformed" });
    const key = yield* findKey(id);
    const { epoch, grant, signer } = key;
    const claims = yield* tokens.verify(token, signer, new Date(epoch + (yield* elapsedMillis)));
    if (typeof claims === "string" || grant === null || signer === noSigner)
      return yield* admit(id, key, null, typeof claims === "string" ? claims : "signature");
    return yield* admit(id, key, toPrincipal(id, grant, claims.visitor, claims.scopes));
  });

  /** Nearly every request calls this, so the common case, a known key, runs without a generator. */
  const authenticate = (
    credential: string,
    { tokens }: { readonly tokens?: VisitorTokens } = {},
  ): Effect.Effect<Principal, Refusal | StorageUnavailable> => {
    const id = keyId(credential);
    if (id === null) {
      return tokens
        ? authenticateVisitor(credential, tokens)
        : Effect.fail(new KeyRejected({ reason: "malformed" }));
    }
    return Effect.flatMap(findKey(id), (key): Effect.Effect<Principal, Refusal> => {
      const principal = key.knownCredentials.get(credential);
      return principal === undefined
        ? hashAndAdmit(id, credential, key)
        : admit(id, key, principal);
    });
  };

  const widget = operation("Access.widget")(
    Effect.fnUntraced(function* (keyId: string) {
      const { expiresAt, grant } = yield* findKey(keyId);
      if (grant === null || expiresAt <= (yield* elapsedMillis)) return null;
      const { chatbot, origins = [] } = grant;
      return { chatbot, origins } satisfies Widget;
    }),
  );

  const admitVisitor = operation("Access.admitVisitor")(
    Effect.fnUntraced(function* (
      id: string,
      tokens: VisitorTokens,
      networks: ReadonlyArray<string>,
      former: string | undefined,
    ) {
      const { epoch, expiresAt, grant, signer } = yield* findKey(id);
      const now = yield* elapsedMillis;
      if (grant === null || !admitsAnonymous(grant) || expiresAt <= now) return null;
      const currentTime = new Date(epoch + now);
      let visitor = `${anonymousPrefix}${crypto.randomUUID()}`;
      let excess: RateExceeded | null;
      if (former === undefined) {
        excess = countNewVisitor(id, networks, now);
      } else {
        const claims =
          tokens.keyId(former) === id
            ? yield* tokens.verify(former, signer, currentTime, renewableFor)
            : "signature";
        // A token that the site's backend signed for a known visitor can be renewed only by that backend.
        if (typeof claims === "string")
          return yield* new KeyRejected({ reason: claims, apiKeyId: id });
        if (!claims.visitor.startsWith(anonymousPrefix))
          return yield* new KeyRejected({ reason: "sub", apiKeyId: id });
        visitor = claims.visitor;
        excess = countForVisitor(id, grant.visitorRatePerMinute, now, visitor);
      }
      if (excess !== null) return yield* excess;
      const end = Math.min(now + anonymousLife, expiresAt);
      return { visitor, signingSecret: signer.signingSecret, expiresAt: new Date(epoch + end) };
    }),
  );

  return {
    /**
     * Checks a key or, with `tokens`, a visitor token. A malformed credential is rejected without a look-up; for any
     * other, the work does not depend on why it is rejected. Fails with `RateExceeded` if the visitor or the key
     * exceeds its rate; only calls in this process count.
     */
    authenticate,
    /** Returns the widget of a valid key; `null` if the key is unknown, expired or revoked. */
    widget,
    /**
     * Returns the claims of a token for an anonymous visitor, and the secret to sign it with; `null` if the key is not
     * valid or admits no anonymous visitors. Without `former`, the visitor is new. `former` is an earlier token of an
     * anonymous visitor, who keeps the same `userRef`; it may have expired up to 30 days ago, and any other string
     * fails with `KeyRejected`. Fails with `RateExceeded` if the visitor exceeds their rate or, for a new visitor, if
     * this process has admitted 10, 40 or 120 new visitors from the client's networks (from the narrowest to the
     * widest), or 300 with the key, within a minute.
     */
    admitVisitor,
  };
});

/** Returns the principal for a credential whose key has this grant; `namedScopes` is `null` for all the key's scopes. */
const toPrincipal = (
  apiKeyId: string,
  { chatbot, scopes, tokensPerDay }: Grant,
  visitor: string | null,
  namedScopes: VisitorClaims["scopes"],
): Principal => ({
  apiKeyId,
  // Only a key itself may post, even if a token names the scope.
  scopes: scopes.filter(
    (scope) =>
      (visitor == null || scope !== "post") &&
      (namedScopes === null || namedScopes.includes(scope)),
  ),
  chatbot,
  visitor,
  ...(tokensPerDay != null && { tokensPerDay }),
});

/**
 * Makes token buckets, each of which refills within a minute. Beyond `maxBuckets`, the bucket whose last granted request
 * is the oldest is dropped; a minute after that request it would be full anyway.
 */
const makeRates = (maxBuckets: number) => {
  const buckets = new Map<string, { readonly tokens: number; readonly at: number }>();
  /** Counts a request by this client of the key, or returns an error if it exceeds the rate; `null` is no limit. */
  return (
    apiKeyId: string,
    ratePerMinute: number | null | undefined,
    now: number,
    client: string | null = "",
  ): RateExceeded | null => {
    if (ratePerMinute == null) return null;
    const name = `${apiKeyId}/${client}`;
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
    return null;
  };
};

/** Checks API keys and visitor tokens, and admits anonymous visitors. */
export class Access extends Context.Service<Access>()("@parley/core/Access", { make }) {
  static readonly layer = Layer.effect(Access, Access.make);
}
