/**
 * Authentication: from the text of an API key, or a visitor's token that the key signed, to what it opens.
 */
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Schedule, Stream } from "effect";
import { Digest, Mac } from "effect/crypto";
import { hashKey, keyId, type KeyRecord, type Scope } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatbotDirectory, type Grant } from "../ports/ChatbotDirectory.ts";
import { KeyRejected, RateExceeded, type StorageUnavailable } from "../model/Errors.ts";
import { makeKeyRequests } from "./Telemetry.ts";

type Refusal = KeyRejected | RateExceeded;

/** What a valid credential opens. */
export interface Principal {
  readonly keyId: string;
  readonly scopes: ReadonlyArray<Scope>;
  readonly chatbot: Chatbot;
  /** The only user whose chats it opens; `null` or absent: every user. */
  readonly userRef?: string | null;
  /** How many tokens the key's asks may cost per day (UTC); absent: any number. */
  readonly tokensPerDay?: number;
}

/** The claims in a visitor's token. */
export interface VisitorClaims {
  readonly userRef: string;
  /** Those of the key, where it names none. */
  readonly scopes: ReadonlyArray<string> | null;
}

/** What the pages of a key's widget need to know. */
export interface Widget extends Pick<KeyRecord, "origins" | "anonymous"> {
  readonly keyId: string;
  readonly chatbot: Chatbot;
}

/** Reads the tokens of visitors, whose form is that of an adapter. */
export interface VisitorTokens {
  /** The id of the key that is said to have signed the token; `null` for a text that is not a token. */
  readonly keyId: (token: string) => string | null;
  /**
   * What a token says that was signed with this secret and is valid at this time, or expired at most `lateMillis` before
   * (0 by default); `null` for any other. Takes the same time for a wrong secret as for the right one.
   */
  readonly verify: (
    token: string,
    key: { readonly signingSecret: string },
    now: Date,
    lateMillis?: number,
  ) => Effect.Effect<VisitorClaims | null>;
}

/** How many keys the process remembers. */
const capacity = 10_000;

/** How many visitors the process remembers, for their rates. */
const visitorCapacity = 50_000;

/** How the `userRef` of an anonymous visitor begins. */
const anonymousPrefix = "visitor-";

/** How long the token of an anonymous visitor is valid, and how long afterwards it can be renewed. */
const anonymousLife = Duration.hours(1);
const renewableFor = Duration.days(30);

/** How long a process takes at most to notice a change whose notification was lost. */
const staleness = Duration.seconds(1);

/** How long after its last look-up a key counts where the store is away, in milliseconds. */
const memory = 60_000;

/** How often the process writes which keys were used. */
const useInterval = Duration.minutes(1);

/** Milliseconds of a monotonic clock. */
const elapsedMillis = Effect.map(Clock.monotonicTimeNanos, (nanos) => Number(nanos) / 1e6);

/** What the store said of a key. Times are elapsed ones. */
interface LookedUp {
  readonly at: number;
  readonly grant: Grant | null;
  /** What the key itself opens; `null` for an unknown key. */
  readonly principal: Principal | null;
  readonly staleAt: number;
  readonly expiresAt: number;
  /** The start of the elapsed time by the store's clock, in milliseconds since 1970. */
  readonly epoch: number;
  readonly signer: { readonly signingSecret: string };
  /** Whether texts with the key's id are the key. A map compares hashes before texts, and so tells no time. */
  readonly texts: Map<string, boolean>;
}

/** Stands for the secret of a key that is unknown or signs no tokens. No token counts that is signed with it. */
const noKey = { signingSecret: "0".repeat(64) };

const make = Effect.gen(function* () {
  const directory = yield* ChatbotDirectory;
  const digest = yield* Digest.Digest;
  const noHash = new Uint8Array(32);

  /** The last grants by the key's id, those that were looked up last at the end. */
  const remembered = new Map<string, LookedUp>();
  const lookUp = Effect.fnUntraced(function* (
    id: string,
  ): Effect.fn.Return<LookedUp, StorageUnavailable> {
    // Before the look-up: what that takes is time of the key, too.
    const at = yield* elapsedMillis;
    const grant = yield* directory.open(id);
    const now = grant?.nowMillis ?? (yield* Clock.currentTimeMillis);
    const lookedUp = {
      at,
      grant,
      principal: grant && toPrincipal(id, grant, { userRef: grant.userRef ?? null, scopes: null }),
      staleAt: (yield* elapsedMillis) + Duration.toMillis(staleness),
      expiresAt: at + (grant?.expiresInMillis ?? Infinity),
      epoch: now - at,
      signer: grant?.signingSecret == null ? noKey : { signingSecret: grant.signingSecret },
      texts: new Map(),
    };
    remembered.delete(id);
    if (grant !== null) remembered.set(id, lookedUp);
    if (remembered.size > capacity) remembered.delete(remembered.keys().next().value!);
    return lookedUp;
  });

  // By the key's id: at most one request a second looks it up, whether it is valid, revoked or unknown. A text that is
  // neither a key nor a token is not remembered.
  const keys = yield* Cache.makeWith(lookUp, {
    capacity,
    timeToLive: (exit) => (Exit.isFailure(exit) ? Duration.zero : staleness),
  });
  let changedAt = -Infinity;
  const forget = Effect.flatMap(elapsedMillis, (now) => {
    changedAt = now;
    return Cache.invalidateAll(keys);
  });
  yield* directory.changed.pipe(
    Stream.runForEach(() => forget),
    Effect.forkScoped,
  );
  /** The cache goes by the machine's clock: after that was set back, it would keep a revoked key for as long. */
  const lookUpOnce = (id: string) =>
    Effect.flatMap(Cache.get(keys, id), (cached) =>
      Effect.flatMap(elapsedMillis, (now) =>
        now < cached.staleAt ? Effect.succeed(cached) : Cache.refresh(keys, id),
      ),
    );
  const recall = Effect.fnUntraced(function* (id: string, error: StorageUnavailable) {
    const key = remembered.get(id);
    const until = key === undefined ? 0 : Math.min(key.at + memory, key.expiresAt);
    return (yield* elapsedMillis) < until ? key! : yield* error;
  });
  const findKey = (id: string, recalls = false) =>
    Effect.flatMap(elapsedMillis, (now) => {
      const key = remembered.get(id);
      if (key !== undefined && changedAt < key.at && now < key.staleAt) return Effect.succeed(key);
      return recalls
        ? Effect.catchTag(lookUpOnce(id), "StorageUnavailable", (error) => recall(id, error))
        : lookUpOnce(id);
    });

  const spendKey = makeRates(capacity);
  const spendVisitor = makeRates(visitorCapacity);
  const spendNew = makeRates(visitorCapacity);

  const countRequest = yield* makeKeyRequests;
  let used = new Set<string>();
  const writeUse = Effect.suspend(() => {
    if (used.size === 0) return Effect.void;
    const ids = used;
    used = new Set();
    return Effect.catchCause(directory.used([...ids]), (cause) => {
      for (const id of ids) used.add(id);
      return Effect.logDebug("Could not record which keys were used", cause);
    });
  });
  yield* Effect.addFinalizer(() => Effect.timeoutOption(writeUse, "2 seconds"));
  yield* writeUse.pipe(Effect.repeat(Schedule.spaced(useInterval)), Effect.forkScoped);

  /** Checks what is left to check of a credential that opens `principal`; `null`: nothing. */
  const admit = (
    id: string,
    { expiresAt, grant }: LookedUp,
    principal: Principal | null,
  ): Effect.Effect<Principal, Refusal> =>
    Effect.flatMap(elapsedMillis, (now): Effect.Effect<Principal, Refusal> => {
      if (grant === null || principal === null || expiresAt <= now) {
        return Effect.fail(new KeyRejected());
      }
      used.add(id);
      countRequest(id, 0, 1);
      const { ratePerMinute, visitorRatePerMinute } = grant;
      const { userRef } = principal;
      let admission: Effect.Effect<Principal, RateExceeded> = Effect.succeed(principal);
      if (ratePerMinute != null) {
        admission = Effect.andThen(spendKey(id, ratePerMinute, id), admission);
      }
      // First, so that a visitor beyond its rate does not use up the key's.
      if (visitorRatePerMinute != null && userRef != null) {
        admission = Effect.andThen(
          spendVisitor(`${id}/${userRef}`, visitorRatePerMinute, id),
          admission,
        );
      }
      return admission;
    });

  /** Hashes a text once, unless many wrong texts have the key's id. */
  const hashAndAdmit = Effect.fnUntraced(function* (id: string, text: string, key: LookedUp) {
    const { grant, principal, texts } = key;
    const hash = yield* Effect.provideService(hashKey(text), Digest.Digest, digest);
    const genuine = Mac.timingSafeEqual(hash, grant?.hash ?? noHash) && grant !== null;
    if (genuine || texts.size < 8) texts.set(text, genuine);
    return yield* admit(id, key, genuine ? principal : null);
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
    const isSigned = claims !== null && grant !== null && signer !== noKey;
    return yield* admit(id, key, isSigned ? toPrincipal(id, grant, claims) : null);
  });

  /** Each request makes one: of a key whose text is known, without a generator. */
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
      const genuine = key.texts.get(credential);
      return genuine === undefined
        ? hashAndAdmit(id, credential, key)
        : admit(id, key, genuine ? key.principal : null);
    });
  };

  const widget = Effect.fnUntraced(function* (keyId: string) {
    const { expiresAt, grant } = yield* findKey(keyId);
    if (grant === null || expiresAt <= (yield* elapsedMillis)) return null;
    const { chatbot, origins = [] } = grant;
    return { keyId, chatbot, origins, anonymous: allowsAnonymous(grant) } satisfies Widget;
  });

  const admitVisitor = Effect.fnUntraced(function* (
    id: string,
    tokens: VisitorTokens,
    {
      former,
      network,
      newVisitors,
    }: {
      readonly former: string | undefined;
      readonly network: string;
      readonly newVisitors: { readonly address: number; readonly key: number };
    },
  ) {
    const { epoch, expiresAt, grant, signer } = yield* findKey(id);
    const now = yield* elapsedMillis;
    if (grant === null || !allowsAnonymous(grant) || expiresAt <= now) return null;
    const present = new Date(epoch + now);
    let userRef = `${anonymousPrefix}${crypto.randomUUID()}`;
    if (former === undefined) {
      // First, so that an address beyond its bound does not use up the key's.
      yield* spendNew(`${id}/${network}`, newVisitors.address, id);
      yield* spendNew(id, newVisitors.key, id);
    } else {
      const late = Duration.toMillis(renewableFor);
      const claims =
        tokens.keyId(former) === id ? yield* tokens.verify(former, signer, present, late) : null;
      // A token that the site's backend signed for a known visitor is its to renew.
      if (claims?.userRef.startsWith(anonymousPrefix) !== true) return yield* new KeyRejected();
      userRef = claims.userRef;
      const rate = grant.visitorRatePerMinute;
      if (rate != null) yield* spendVisitor(`${id}/${userRef}`, rate, id);
    }
    const end = Math.min(now + Duration.toMillis(anonymousLife), expiresAt);
    return { userRef, signingSecret: signer.signingSecret, expiresAt: new Date(epoch + end) };
  });

  return {
    /**
     * Checks a key or, with `tokens`, a token of a visitor. A malformed one costs no look-up; every other
     * rejection does the same work. Fails with `RateExceeded` beyond the rate of the visitor or the key, which count the
     * calls in this process.
     *
     * `recalls`: whether a key that was valid within the last minute counts while the store is away; its expiry counts,
     * too, but not a revocation. `false` by default.
     */
    authenticate,
    /** The widget of a valid key; `null` for a key that is unknown, expired or revoked. */
    widget,
    /**
     * What a token for an anonymous visitor says, and the secret to sign it with; `null` for a key that allows none. The
     * visitor is a new one, or that of a `former` token; another text fails with `KeyRejected`. Fails with
     * `RateExceeded` beyond `newVisitors` a minute in this process, for the network of the client or for the key, or
     * beyond the rate of the visitor.
     */
    admitVisitor,
  };
});

/** What a credential of a key opens that makes these claims. */
const toPrincipal = (
  keyId: string,
  { chatbot, scopes, tokensPerDay }: Grant,
  {
    scopes: named,
    userRef,
  }: { readonly userRef: string | null; readonly scopes: VisitorClaims["scopes"] },
): Principal => ({
  keyId,
  scopes: named === null ? scopes : scopes.filter((scope) => named.includes(scope)),
  chatbot,
  userRef,
  ...(tokensPerDay != null && { tokensPerDay }),
});

/** Without a bound on what strangers spend, a key admits none. */
const allowsAnonymous = (grant: Grant): boolean =>
  grant.anonymous === true &&
  grant.signingSecret != null &&
  grant.tokensPerDay != null &&
  grant.visitorRatePerMinute != null;

/**
 * Token buckets of a minute, by name. Beyond `most` the one that was spent from longest ago is forgotten, which is full
 * again after a minute.
 */
const makeRates = (most: number) => {
  const buckets = new Map<string, { readonly left: number; readonly at: number }>();
  return (name: string, ratePerMinute: number, keyId: string) =>
    Effect.flatMap(elapsedMillis, (now) => {
      const { at, left } = buckets.get(name) ?? { at: now, left: ratePerMinute };
      const millisPerRequest = 60_000 / ratePerMinute;
      const available = Math.min(ratePerMinute, left + (now - at) / millisPerRequest);
      if (available < 1) {
        const retryAfterSeconds = Math.ceil(((1 - available) * millisPerRequest) / 1000);
        return new RateExceeded({ keyId, retryAfterSeconds });
      }
      buckets.delete(name);
      buckets.set(name, { left: available - 1, at: now });
      if (buckets.size > most) buckets.delete(buckets.keys().next().value!);
      return Effect.void;
    });
};

/** Checks API keys, and tokens of visitors. */
export class Access extends Context.Service<Access>()("@parley/core/Access", { make }) {
  static readonly layer = Layer.effect(Access, Access.make);
}
