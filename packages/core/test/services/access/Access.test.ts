import { assert, it } from "@effect/vitest";
import { Access, generateKey, keyId, type Principal, type VisitorTokens } from "@parley/core";
import { ChatbotDirectory, hashKey, StorageUnavailable, type Grant } from "@parley/core/ports";
import { Clock, Effect, Exit, Fiber, Layer, Redacted } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { TestClock } from "effect/testing";
import { chatbot } from "../asking/asked.ts";

const newKey = Effect.map(Effect.provide(generateKey, SecureRandom.layerWebCrypto), Redacted.value);

/** Builds `Access` over a directory with one key, and counts its look-ups and hashes. */
const directory = Effect.fnUntraced(function* (key: string, more: Partial<Grant> = {}) {
  const hash = yield* Effect.provide(hashKey(key), Digest.layerWebCrypto);
  const state = {
    lookUps: 0,
    hashes: 0,
    /** Runs during each look-up. */
    duringLookUp: Effect.void as Effect.Effect<unknown, StorageUnavailable>,
    revoked: false,
    uses: [] as Array<ReadonlyArray<string>>,
    duringWrite: Effect.void as Effect.Effect<void, StorageUnavailable>,
  };
  const web = yield* Effect.provide(Digest.Digest, Digest.layerWebCrypto);
  const layer = Access.layer.pipe(
    Layer.provide([
      Layer.succeed(Digest.Digest, {
        ...web,
        digest: (...args) => Effect.suspend(() => (state.hashes++, web.digest(...args))),
      }),
      Layer.succeed(
        ChatbotDirectory,
        ChatbotDirectory.of({
          find: (id) =>
            Effect.suspend(() => {
              state.lookUps++;
              const grant =
                id === keyId(key) && !state.revoked
                  ? { hash, scopes: ["read"], expiresInMillis: null, chatbot, ...more }
                  : null;
              return Effect.as(state.duringLookUp, grant as Grant | null);
            }),
          recordUse: (ids) =>
            Effect.andThen(
              state.duringWrite,
              Effect.sync(() => void state.uses.push([...ids])),
            ),
        }),
      ),
    ]),
  );
  return { state, layer };
});

/** A test with `Access` over a directory with a key, to whose grant these fields belong. */
const withKey = (
  name: string,
  more: Partial<Grant>,
  test: (
    key: string,
    state: Effect.Success<ReturnType<typeof directory>>["state"],
  ) => Generator<Effect.Effect<any, any, Access>, void, never>,
) =>
  it.effect(name, () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer, state } = yield* directory(key, more);
      yield* Effect.provide(
        Effect.gen(() => test(key, state)),
        layer,
      );
    }),
  );

const authenticate = (key: string) => Access.use((access) => access.authenticate(key));

withKey("a valid key gives access to its chatbot", {}, function* (key) {
  const principal = yield* authenticate(key);
  const expected = { apiKeyId: keyId(key)!, scopes: ["read"] as const, chatbot, visitor: null };
  assert.deepStrictEqual<Principal>(principal, expected);
});

withKey("malformed keys are rejected without a look-up", {}, function* (key, state) {
  const other = key.at(-1) === "0" ? "1" : "0";
  for (const wrong of [
    "",
    "prl_",
    key.slice(1),
    key.slice(0, -1),
    `${key} `,
    key.slice(0, -1) + other,
    key.slice(0, 20) + (key[20] === "a" ? "b" : "a") + key.slice(21),
    key.toLowerCase() === key ? "x" : key.toLowerCase(),
  ]) {
    assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(wrong))), wrong);
  }
  assert.strictEqual(state.lookUps, 0);
});

withKey("a key with the wrong secret is rejected", { hash: new Uint8Array(32) }, function* (key) {
  assert.strictEqual((yield* Effect.flip(authenticate(key)))._tag, "KeyRejected");
});

withKey(
  "a key, valid or unknown, is looked up and hashed at most once a second, and rejected within a second of its revocation",
  {},
  function* (key, state) {
    const unknown = yield* newKey;
    yield* Effect.repeat(authenticate(key), { times: 9 });
    assert.deepStrictEqual([state.lookUps, state.hashes], [1, 1]);
    yield* Effect.repeat(Effect.flip(authenticate(unknown)), { times: 9 });
    assert.deepStrictEqual([state.lookUps, state.hashes], [2, 2]);
    state.revoked = true;
    yield* TestClock.adjust(999);
    yield* authenticate(key);
    assert.deepStrictEqual([state.lookUps, state.hashes], [2, 2]);
    yield* TestClock.adjust(1);
    yield* Effect.flip(authenticate(unknown));
    yield* Effect.repeat(Effect.flip(authenticate(key)), { times: 9 });
    assert.deepStrictEqual([state.lookUps, state.hashes], [4, 4]);
  },
);

withKey(
  "concurrent requests share a look-up, even if the first of them is interrupted",
  {},
  function* (key, state) {
    state.duringLookUp = Effect.sleep(300);
    const [first, ...others] = yield* Effect.replicateEffect(
      Effect.forkChild(authenticate(key), { startImmediately: true }),
      10,
    );
    yield* TestClock.adjust(100);
    yield* Fiber.interrupt(first!);
    yield* TestClock.adjust(200);
    for (const other of others) assert.strictEqual((yield* Fiber.join(other)).visitor, null);
    assert.strictEqual(state.lookUps, 1);
  },
);

withKey(
  "a look-up that fails or that every request has left is repeated at once",
  {},
  function* (key, state) {
    state.duringLookUp = Effect.never;
    const request = yield* Effect.forkChild(authenticate(key), { startImmediately: true });
    yield* Fiber.interrupt(request);
    state.duringLookUp = Effect.fail(new StorageUnavailable({ cause: "unavailable" }));
    const error = yield* Effect.flip(authenticate(key));
    assert.strictEqual(error._tag, "StorageUnavailable");
    state.duringLookUp = Effect.die("a defect");
    assert.isTrue(Exit.hasDies(yield* Effect.exit(authenticate(key))));
    state.duringLookUp = Effect.void;
    yield* authenticate(key);
    assert.strictEqual(state.lookUps, 4);
    // While the store is unavailable, a key is accepted no longer than while it is available.
    state.duringLookUp = Effect.fail(new StorageUnavailable({ cause: "unavailable" }));
    yield* TestClock.adjust("1 second");
    assert.strictEqual((yield* Effect.flip(authenticate(key)))._tag, "StorageUnavailable");
  },
);

withKey(
  "a request never uses a look-up that started more than a second earlier",
  {},
  function* (key, state) {
    state.duringLookUp = Effect.sleep("3 seconds");
    const slow = yield* Effect.forkChild(authenticate(key), { startImmediately: true });
    yield* TestClock.adjust("1 second");
    state.revoked = true;
    state.duringLookUp = Effect.void;
    assert.strictEqual((yield* Effect.flip(authenticate(key)))._tag, "KeyRejected");
    yield* TestClock.adjust("2 seconds");
    yield* Fiber.join(slow);
    assert.strictEqual((yield* Effect.flip(authenticate(key)))._tag, "KeyRejected");
  },
);

withKey(
  "in a flood of unknown ids, a key is looked up again only once in 10,000 look-ups",
  {},
  function* (key, state) {
    const access = yield* Access;
    for (let n = 0; n < 20_000; n++) {
      yield* access.widget(`unknown ${n}`);
      yield* access.authenticate(key);
    }
    assert.strictEqual(state.lookUps, 20_002);
  },
);

withKey(
  "a key is rejected from the moment it expires",
  { expiresInMillis: 900 },
  function* (key, state) {
    // The time spent on the look-up counts towards the key's lifetime.
    state.duringLookUp = Effect.sleep(300);
    const lookUp = yield* Effect.forkChild(authenticate(key));
    yield* TestClock.adjust(300);
    yield* Fiber.join(lookUp);
    yield* TestClock.adjust(599);
    yield* authenticate(key);
    yield* TestClock.adjust(1);
    assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
  },
);

it.effect(
  "changing the system clock affects neither when a key expires nor for how long its look-up is cached",
  () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer, state } = yield* directory(key, { expiresInMillis: 900 });
      const clock = yield* Clock.Clock;
      let wall = Date.parse("2026-11-25");
      let elapsed = 0;
      const settable: Clock.Clock = {
        ...clock,
        currentTimeMillisUnsafe: () => wall,
        currentTimeMillis: Effect.sync(() => wall),
        monotonicTimeNanosUnsafe: () => BigInt(elapsed * 1e6),
        sleep: clock.sleep,
      };
      const pass = (millis: number) => void ((wall += millis), (elapsed += millis));
      yield* Effect.gen(function* () {
        yield* authenticate(key);
        wall += 86_400_000;
        yield* authenticate(key);
        wall -= 2 * 86_400_000;
        pass(899);
        yield* authenticate(key);
        pass(1);
        assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
        pass(101);
        yield* authenticate(key);
        assert.strictEqual(state.lookUps, 2);
        pass(1_001);
        state.revoked = true;
        assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
      }).pipe(Effect.provide(layer), Effect.provideService(Clock.Clock, settable));
    }),
);

withKey(
  "a key is accepted as often as its rate allows, and the error says when it will be accepted again",
  { ratePerMinute: 7 },
  function* (key) {
    const refused = Effect.map(Effect.flip(authenticate(key)), (error) =>
      error._tag === "RateExceeded" ? [error.apiKeyId, error.retryAfterSeconds] : error._tag,
    );
    yield* Effect.repeat(authenticate(key), { times: 6 });
    const inNineSeconds = [keyId(key)!, 9];
    assert.deepStrictEqual([yield* refused, yield* refused], [inNineSeconds, inNineSeconds]);
    yield* TestClock.adjust("9 seconds");
    yield* authenticate(key);
    assert.deepStrictEqual(yield* refused, inNineSeconds);
    yield* TestClock.adjust("1 minute");
    yield* Effect.repeat(authenticate(key), { times: 6 });
    assert.deepStrictEqual(yield* refused, inNineSeconds);
  },
);

/** Unsigned tokens of the form `<key id> <visitor>`. */
const tokens: VisitorTokens = {
  keyId: (token) => token.split(" ")[0] ?? null,
  verify: (token) => Effect.succeed({ visitor: token.split(" ")[1]!, scopes: null }),
};
const visit = (id: string, visitor: string) =>
  Access.use((access) => access.authenticate(`${id} ${visitor}`, { tokens })).pipe(
    Effect.match({
      onFailure: (error) => (error._tag === "RateExceeded" ? error.retryAfterSeconds : -1),
      onSuccess: () => 0,
    }),
  );

withKey(
  "each visitor has a separate rate, and requests that exceed it do not count towards the key's",
  { signingSecret: "s", visitorRatePerMinute: 2, ratePerMinute: 5 },
  function* (key) {
    const id = keyId(key)!;

    for (const expected of [0, 0, 30, 30, 30, 30, 30, 30]) {
      assert.strictEqual(yield* visit(id, "a"), expected);
    }
    assert.deepStrictEqual([yield* visit(id, "b"), yield* visit(id, "b")], [0, 0]);
    // Requests with the key itself and from all its visitors count towards the key's rate.
    yield* authenticate(key);
    assert.strictEqual(yield* visit(id, "c"), 12);
    yield* TestClock.adjust("30 seconds");
    assert.deepStrictEqual([yield* visit(id, "a"), yield* visit(id, "a")], [0, 30]);
  },
);

withKey(
  "a process keeps count of the requests from the 50,000 most recent visitors",
  { signingSecret: "s", visitorRatePerMinute: 1 },
  function* (key) {
    const id = keyId(key)!;

    for (let n = 0; n <= 50_000; n++) yield* visit(id, `${n}`);
    assert.deepStrictEqual([yield* visit(id, "50000"), yield* visit(id, "1")], [60, 60]);
    assert.strictEqual(yield* visit(id, "0"), 0);
  },
);

withKey(
  "a key that an embedder assigns to a user acts for them, at the visitor rate",
  { visitor: "a", visitorRatePerMinute: 1 },
  function* (key) {
    assert.strictEqual((yield* authenticate(key)).visitor, "a");
    assert.strictEqual((yield* Effect.flip(authenticate(key)))._tag, "RateExceeded");
  },
);

withKey(
  "the use of a key is recorded once a minute, unless the key is rejected",
  {},
  function* (key, state) {
    const wrong = yield* newKey;
    yield* Effect.yieldNow;
    for (let n = 0; n < 20; n++) {
      yield* authenticate(key);
      yield* Effect.exit(authenticate(wrong));
      yield* TestClock.adjust("3 seconds");
    }
    assert.deepStrictEqual(state.uses, [[keyId(key)!]]);
    yield* TestClock.adjust("1 minute");
    assert.deepStrictEqual(state.uses, [[keyId(key)!]]);
  },
);

it.effect(
  "recording the use of a key is retried every minute, and done at once when the process stops",
  () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer, state } = yield* directory(key);
      yield* Effect.gen(function* () {
        yield* Effect.yieldNow;
        yield* authenticate(key);
        for (const failure of [
          Effect.fail(new StorageUnavailable({ cause: "gone" })),
          Effect.die("a defect"),
        ]) {
          state.duringWrite = failure;
          yield* TestClock.adjust("1 minute");
        }
        assert.deepStrictEqual(state.uses, []);
        state.duringWrite = Effect.void;
        yield* TestClock.adjust("1 minute");
        assert.deepStrictEqual(state.uses, [[keyId(key)!]]);
        yield* authenticate(key);
      }).pipe(Effect.provide(layer));
      assert.deepStrictEqual(state.uses, [[keyId(key)!], [keyId(key)!]]);
    }),
);

it("the key in the samples of earlier documents is refused", () => {
  assert.isNull(keyId("prl_0V2ClbsUvRtr_KNsvc24Uij3stmrY9QNFvKQNdDB0DxCe_32uFFN"));
});
