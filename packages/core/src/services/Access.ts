/**
 * Authentication: from the text of an API key to the chatbot that it opens (section 5).
 */
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Schedule, Stream } from "effect";
import { Digest, Mac } from "effect/crypto";
import { hashKey, keyId, type Scope } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatbotDirectory } from "../ports/ChatbotDirectory.ts";
import { KeyRejected, Overloaded, type StorageUnavailable } from "../model/Errors.ts";

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

/** How often the process writes which keys were used. */
const useInterval = Duration.minutes(1);

export class Access extends Context.Service<
  Access,
  {
    /**
     * Checks a key (section 5). A malformed one costs no look-up; every other rejection does the same work. Fails with
     * `Overloaded` beyond the key's rate, which counts the calls in this process.
     */
    readonly authenticate: (
      key: string,
    ) => Effect.Effect<Principal, KeyRejected | Overloaded | StorageUnavailable>;
  }
>()("@parley/core/Access") {
  static readonly layer: Layer.Layer<Access, never, ChatbotDirectory | Digest.Digest> =
    Layer.effect(
      Access,
      Effect.gen(function* () {
        const directory = yield* ChatbotDirectory;
        const digest = yield* Digest.Digest;
        const noHash = new Uint8Array(32);

        const open = Effect.fnUntraced(function* (key: string) {
          const id = keyId(key);
          if (id === null) return yield* new KeyRejected();
          const found = yield* directory.open(id);
          const hash = yield* Effect.provideService(hashKey(key), Digest.Digest, digest);
          const isGenuine = Mac.timingSafeEqual(hash, found?.hash ?? noHash);
          if (!isGenuine || found === null) return null;
          const { chatbot, expiresAt, ratePerMinute, scopes } = found;
          return { expiresAt, ratePerMinute, principal: { keyId: id, scopes, chatbot } };
        });

        // By the key's text: at most one request a second hashes a key and looks it up, whether it is valid or revoked.
        // A malformed key fails and takes no room.
        const opened = yield* Cache.makeWith(open, {
          capacity,
          timeToLive: (exit) => (Exit.isFailure(exit) ? Duration.zero : staleness),
        });
        yield* directory.changed.pipe(
          Stream.runForEach(() => Cache.invalidateAll(opened)),
          Effect.forkScoped,
        );

        /** By key: the time at which its requests so far would have been spread evenly, in milliseconds since 1970. */
        const spread = new Map<string, number>();
        /** Counts a request, unless it exceeds the rate: then returns the milliseconds until it would not. */
        const exceeds = (keyId: string, ratePerMinute: number, now: number): number => {
          const interval = 60_000 / ratePerMinute;
          const next = Math.max(now, spread.get(keyId) ?? now) + interval;
          const excess = next - now - 60_000;
          // Sums of intervals are inexact.
          if (excess > interval / 2) return excess;
          spread.set(keyId, next);
          return 0;
        };

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

        return Access.of({
          authenticate: Effect.fnUntraced(function* (key) {
            const found = yield* Cache.get(opened, key);
            const now = yield* Clock.currentTimeMillis;
            if (found === null || (found.expiresAt !== null && found.expiresAt.getTime() <= now)) {
              return yield* new KeyRejected();
            }
            const { principal, ratePerMinute } = found;
            used.add(principal.keyId);
            if (ratePerMinute != null) {
              const millis = exceeds(principal.keyId, ratePerMinute, now);
              if (millis > 0) {
                return yield* new Overloaded({ retryAfterSeconds: Math.ceil(millis / 1000) });
              }
            }
            return principal;
          }),
        });
      }),
    );
}
