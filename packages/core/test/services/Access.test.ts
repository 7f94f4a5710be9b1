import { assert, describe, it } from "@effect/vitest";
import {
  Access,
  type ChatbotId,
  generateKey,
  keyId,
  type Principal,
  type VisitorTokens,
} from "@parley/core";
import { ChatbotDirectory, hashKey, StorageUnavailable, type Grant } from "@parley/core/ports";
import { Clock, Effect, Exit, Fiber, Layer, PubSub, Redacted, Stream } from "effect";
import { Digest, SecureRandom } from "effect/crypto";
import { TestClock } from "effect/testing";
import { chatbot } from "./asked.ts";

const newKey = Effect.map(Effect.provide(generateKey, SecureRandom.layerWebCrypto), Redacted.value);

/** A directory of one key, which counts how often it is asked. */
const directory = Effect.fnUntraced(function* (key: string, more: Partial<Grant> = {}) {
  const hash = yield* Effect.provide(hashKey(key), Digest.layerWebCrypto);
  const changed = yield* PubSub.unbounded<ChatbotId | null>();
  const state = {
    asked: 0,
    hashed: 0,
    /** Comes between the look-up and its answer. */
    found: Effect.void as Effect.Effect<unknown, StorageUnavailable>,
    revoked: false,
    changed,
    used: [] as Array<ReadonlyArray<string>>,
    broken: Effect.void as Effect.Effect<void, StorageUnavailable>,
  };
  const web = yield* Effect.provide(Digest.Digest, Digest.layerWebCrypto);
  const layer = Access.layer.pipe(
    Layer.provide([
      Layer.succeed(Digest.Digest, {
        ...web,
        digest: (...one) => Effect.suspend(() => (state.hashed++, web.digest(...one))),
      }),
      Layer.succeed(
        ChatbotDirectory,
        ChatbotDirectory.of({
          open: (id) =>
            Effect.suspend(() => {
              state.asked++;
              const found =
                id === keyId(key) && !state.revoked
                  ? { hash, scopes: ["read"], expiresInMillis: null, chatbot, ...more }
                  : null;
              return Effect.as(state.found, found as Grant | null);
            }),
          used: (ids) =>
            Effect.andThen(
              state.broken,
              Effect.sync(() => void state.used.push([...ids])),
            ),
          changed: Stream.fromPubSub(changed),
        }),
      ),
    ]),
  );
  return { state, layer };
});

const authenticate = (key: string) => Access.use((access) => access.authenticate(key));

describe("access", () => {
  it.effect("opens the chatbot of a valid key", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer } = yield* directory(key);
      const principal = yield* Effect.provide(authenticate(key), layer);
      const opened = { keyId: keyId(key)!, scopes: ["read"] as const, chatbot, visitor: null };
      assert.deepStrictEqual<Principal>(principal, opened);
    }),
  );

  it.effect("rejects malformed keys without asking for them", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer, state } = yield* directory(key);
      yield* Effect.gen(function* () {
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
        assert.strictEqual(state.asked, 0);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("rejects a key of a known id with another secret, and one of an unknown id", () =>
    Effect.gen(function* () {
      const [key, unknown] = [yield* newKey, yield* newKey];
      const { layer } = yield* directory(key, { hash: new Uint8Array(32) });
      yield* Effect.gen(function* () {
        assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
        assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(unknown))));
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("looks a key up and hashes it once a second, a wrong one too", () =>
    Effect.gen(function* () {
      const [key, wrong] = [yield* newKey, yield* newKey];
      const { layer, state } = yield* directory(key);
      yield* Effect.gen(function* () {
        yield* Effect.repeat(authenticate(key), { times: 9 });
        assert.deepStrictEqual([state.asked, state.hashed], [1, 1]);
        yield* Effect.repeat(Effect.flip(authenticate(wrong)), { times: 9 });
        assert.deepStrictEqual([state.asked, state.hashed], [2, 2]);
        yield* TestClock.adjust("1 second");
        yield* authenticate(key);
        yield* Effect.flip(authenticate(wrong));
        assert.deepStrictEqual([state.asked, state.hashed], [4, 4]);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect(
    "does not remember what it looked up before a notification that arrived meanwhile",
    () =>
      Effect.gen(function* () {
        const key = yield* newKey;
        const { layer, state } = yield* directory(key);
        yield* Effect.gen(function* () {
          yield* Effect.repeat(Effect.yieldNow, { times: 20 });
          state.found = Effect.yieldNow.pipe(Effect.repeat({ times: 50 }));
          const looking = yield* Effect.forkChild(authenticate(key), { startImmediately: true });
          state.revoked = true;
          yield* PubSub.publish(state.changed, null);
          yield* Fiber.join(looking);
          assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
        }).pipe(Effect.provide(layer));
      }),
  );

  it.effect("rejects a key from its expiry on", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer, state } = yield* directory(key, { expiresInMillis: 900 });
      // The time that the look-up takes is time of the key.
      state.found = Effect.sleep(300);
      yield* Effect.gen(function* () {
        const looking = yield* Effect.forkChild(authenticate(key));
        yield* TestClock.adjust(300);
        yield* Fiber.join(looking);
        yield* TestClock.adjust(599);
        yield* authenticate(key);
        yield* TestClock.adjust(1);
        assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("neither lengthens a key's life nor remembers it when the machine's clock is set", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer, state } = yield* directory(key, { expiresInMillis: 3_000 });
      const clock = yield* Clock.Clock;
      let wall = Date.parse("2026-11-25");
      let elapsed = 0;
      const settable: Clock.Clock = {
        ...clock,
        currentTimeMillisUnsafe: () => wall,
        currentTimeMillis: Effect.sync(() => wall),
        monotonicTimeNanos: Effect.sync(() => BigInt(elapsed * 1e6)),
        sleep: clock.sleep,
      };
      const pass = (millis: number) => void ((wall += millis), (elapsed += millis));
      yield* Effect.gen(function* () {
        yield* authenticate(key);
        wall += 86_400_000;
        yield* authenticate(key);
        wall -= 2 * 86_400_000;
        yield* authenticate(key);
        pass(1_001);
        state.revoked = true;
        assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
      }).pipe(Effect.provide(layer), Effect.provideService(Clock.Clock, settable));
    }),
  );

  it.effect(
    "recalls a key for a minute while the store is unavailable, until it expires, and only where asked to",
    () =>
      Effect.gen(function* () {
        const [key, unknown] = [yield* newKey, yield* newKey];
        const recall = (text: string) =>
          Access.use((access) => access.authenticate(text, { recalls: true }));
        const isRefused = (work: Effect.Effect<unknown, { readonly _tag: string }, Access>) =>
          Effect.flip(work).pipe(
            Effect.map(({ _tag }) => assert.strictEqual(_tag, "StorageUnavailable")),
          );
        for (const [lifetime, millis] of [
          [null, 60_000],
          [30_000, 30_000],
        ] as const) {
          const { layer, state } = yield* directory(key, { expiresInMillis: lifetime });
          yield* Effect.gen(function* () {
            yield* authenticate(key);
            state.found = Effect.fail(new StorageUnavailable({ cause: "unavailable" }));
            yield* TestClock.adjust(1_001);
            yield* isRefused(authenticate(key));
            yield* isRefused(recall(unknown));
            yield* TestClock.adjust(millis - 1_002);
            assert.strictEqual((yield* recall(key)).keyId, keyId(key));
            yield* TestClock.adjust(1);
            yield* isRefused(recall(key));
          }).pipe(Effect.provide(layer));
        }
        const { layer, state } = yield* directory(key);
        yield* Effect.gen(function* () {
          yield* authenticate(key);
          state.revoked = true;
          yield* TestClock.adjust(1_001);
          assert.isTrue(Exit.isFailure(yield* Effect.exit(recall(key))));
          state.found = Effect.fail(new StorageUnavailable({ cause: "unavailable" }));
          yield* TestClock.adjust(1_001);
          yield* isRefused(recall(key));
        }).pipe(Effect.provide(layer));
      }),
  );

  it.effect("accepts a key as often as its rate allows, and says when it may come again", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer } = yield* directory(key, { ratePerMinute: 7 });
      yield* Effect.gen(function* () {
        const refused = Effect.map(Effect.flip(authenticate(key)), (error) =>
          error._tag === "RateExceeded" ? [error.keyId, error.retryAfterSeconds] : error._tag,
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
      }).pipe(Effect.provide(layer));
    }),
  );

  /** Tokens of a key that any text after its id signs: `<key id> <visitor>`. */
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

  it.effect("each visitor has a rate of its own, and beyond it does not use up the key's", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const id = keyId(key)!;
      const rates = { signingSecret: "s", visitorRatePerMinute: 2, ratePerMinute: 5 };
      const { layer } = yield* directory(key, rates);
      yield* Effect.gen(function* () {
        for (const expected of [0, 0, 30, 30, 30, 30, 30, 30]) {
          assert.strictEqual(yield* visit(id, "a"), expected);
        }
        assert.deepStrictEqual([yield* visit(id, "b"), yield* visit(id, "b")], [0, 0]);
        // The key has a rate, too, which counts all of its requests.
        yield* authenticate(key);
        assert.strictEqual(yield* visit(id, "c"), 12);
        yield* TestClock.adjust("30 seconds");
        assert.deepStrictEqual([yield* visit(id, "a"), yield* visit(id, "a")], [0, 30]);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("the process remembers the rates of 50,000 visitors, those that came last", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const id = keyId(key)!;
      const { layer } = yield* directory(key, { signingSecret: "s", visitorRatePerMinute: 1 });
      yield* Effect.gen(function* () {
        for (let n = 0; n <= 50_000; n++) yield* visit(id, `${n}`);
        assert.deepStrictEqual([yield* visit(id, "50000"), yield* visit(id, "1")], [60, 60]);
        assert.strictEqual(yield* visit(id, "0"), 0);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("an embedder's own key may belong to one user, and has the rate of a visitor", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      const { layer } = yield* directory(key, { visitor: "a", visitorRatePerMinute: 1 });
      yield* Effect.gen(function* () {
        assert.strictEqual((yield* authenticate(key)).visitor, "a");
        assert.strictEqual((yield* Effect.flip(authenticate(key)))._tag, "RateExceeded");
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("forgets what it knows at a notification, and without one after a second", () =>
    Effect.gen(function* () {
      const key = yield* newKey;
      for (const isNotified of [true, false]) {
        const { layer, state } = yield* directory(key);
        yield* Effect.gen(function* () {
          yield* Effect.repeat(Effect.yieldNow, { times: 20 });
          yield* authenticate(key);
          state.revoked = true;
          yield* authenticate(key);
          if (isNotified) {
            yield* PubSub.publish(state.changed, null);
            yield* Effect.repeat(Effect.yieldNow, { times: 20 });
          } else {
            yield* TestClock.adjust("1 second");
          }
          assert.isTrue(Exit.isFailure(yield* Effect.exit(authenticate(key))));
        }).pipe(Effect.provide(layer));
      }
    }),
  );
});

describe("the use of keys", () => {
  it.effect("is written once a minute, and not of keys that are rejected", () =>
    Effect.gen(function* () {
      const [key, wrong] = [yield* newKey, yield* newKey];
      const { layer, state } = yield* directory(key);
      yield* Effect.gen(function* () {
        yield* Effect.yieldNow;
        for (let n = 0; n < 20; n++) {
          yield* authenticate(key);
          yield* Effect.exit(authenticate(wrong));
          yield* TestClock.adjust("3 seconds");
        }
        assert.deepStrictEqual(state.used, [[keyId(key)!]]);
        yield* TestClock.adjust("1 minute");
        assert.deepStrictEqual(state.used, [[keyId(key)!]]);
      }).pipe(Effect.provide(layer));
    }),
  );

  it.effect("is written a minute later when the store failed, and when the process stops", () =>
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
          state.broken = failure;
          yield* TestClock.adjust("1 minute");
        }
        assert.deepStrictEqual(state.used, []);
        state.broken = Effect.void;
        yield* TestClock.adjust("1 minute");
        assert.deepStrictEqual(state.used, [[keyId(key)!]]);
        yield* authenticate(key);
      }).pipe(Effect.provide(layer));
      assert.deepStrictEqual(state.used, [[keyId(key)!], [keyId(key)!]]);
    }),
  );
});
