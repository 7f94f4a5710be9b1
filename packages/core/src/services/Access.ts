/**
 * Who asks: from the text of an API key to the chatbot that it opens (section 5).
 */
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Schedule, Stream } from "effect";
import { Digest, Mac } from "effect/crypto";
import { hashKey, keyId, keyState, type Scope } from "../model/ApiKey.ts";
import type { Chatbot } from "../model/Chatbot.ts";
import { ChatbotDirectory, type Opened } from "../ports/ChatbotDirectory.ts";
import { KeyRejected, type StorageUnavailable } from "../model/Errors.ts";

/** What a valid key allows. */
export interface Principal {
  readonly keyId: string;
  readonly scopes: ReadonlyArray<Scope>;
  readonly chatbot: Chatbot;
}

/** How many keys are remembered. */
const capacity = 10_000;

/** How long the text of an accepted key is remembered, so that not each request hashes it. */
const memory = Duration.seconds(1);

/** How long it takes at most until a change is noticed whose hint was lost. */
const staleness = Duration.seconds(30);

/** How often the use of a key is noted at most, in milliseconds. */
const useInterval = 60_000;

export class Access extends Context.Service<
  Access,
  {
    /** Judges a key. Malformed ones cost no look-up; every other failure does the same work. */
    readonly authenticate: (
      key: string,
    ) => Effect.Effect<Principal, KeyRejected | StorageUnavailable>;
  }
>()("@parley/core/Access") {
  static readonly layer: Layer.Layer<Access, never, ChatbotDirectory | Digest.Digest> =
    Layer.effect(
      Access,
      Effect.gen(function* () {
        const directory = yield* ChatbotDirectory;
        const digest = yield* Digest.Digest;
        const nobody = new Uint8Array(32);

        const opened = yield* Cache.makeWith(directory.open, {
          capacity,
          timeToLive: (exit) =>
            Exit.isFailure(exit)
              ? Duration.zero
              : exit.value === null
                ? Duration.seconds(1)
                : Duration.subtract(staleness, memory),
        });

        /** By their text. Forgotten as a whole: a check that is under way then notes what it found in the old map. */
        let accepted = new Map<string, Pick<Opened, "expiresAt"> & { principal: Principal }>();
        const forget = Effect.sync(() => void (accepted = new Map()));
        yield* Effect.delay(forget, memory).pipe(Effect.forever, Effect.forkScoped);
        yield* directory.changed.pipe(
          Stream.runForEach(() => Effect.andThen(forget, Cache.invalidateAll(opened))),
          Effect.forkScoped,
        );

        /** When the use of a key was noted last. */
        const noted = new Map<string, number>();
        /** Whose use the directory has not been told of. */
        let used = new Set<string>();
        const noteUse = (id: string, now: number) => {
          if (now - (noted.get(id) ?? -Infinity) < useInterval) return;
          // A use in the past minute must be remembered; the first in the map are the oldest.
          for (const [old, time] of noted) {
            if (now - time < useInterval) break;
            noted.delete(old);
          }
          noted.delete(id);
          noted.set(id, now);
          used.add(id);
        };
        const tellUse = Effect.suspend(() => {
          if (used.size === 0) return Effect.void;
          const ids = used;
          used = new Set();
          return Effect.catchCause(directory.used([...ids]), (cause) => {
            for (const id of ids) used.add(id);
            return Effect.logDebug("The use of keys could not be noted", cause);
          });
        });
        yield* Effect.addFinalizer(() => Effect.timeoutOption(tellUse, "2 seconds"));
        yield* tellUse.pipe(Effect.repeat(Schedule.spaced("3 seconds")), Effect.forkScoped);

        const isLive = ({ expiresAt }: Pick<Opened, "expiresAt">, now: number) =>
          keyState({ expiresAt, revokedAt: null }, now) === "live";

        const check = Effect.fnUntraced(function* (key: string) {
          const remembered = accepted;
          const id = keyId(key);
          if (id === null) return yield* new KeyRejected();
          const found = yield* Cache.get(opened, id);
          const hash = yield* Effect.provideService(hashKey(key), Digest.Digest, digest);
          const genuine = Mac.timingSafeEqual(hash, found?.hash ?? nobody);
          if (!genuine || found === null) return yield* new KeyRejected();
          const now = yield* Clock.currentTimeMillis;
          if (!isLive(found, now)) return yield* new KeyRejected();
          noteUse(id, now);
          const principal = { keyId: id, scopes: found.scopes, chatbot: found.chatbot };
          remembered.set(key, { principal, expiresAt: found.expiresAt });
          return principal;
        });

        const authenticate = (key: string) =>
          Clock.clockWith((clock) => {
            const known = accepted.get(key);
            const now = clock.currentTimeMillisUnsafe();
            if (known === undefined || !isLive(known, now)) return check(key);
            noteUse(known.principal.keyId, now);
            return Effect.succeed(known.principal);
          });

        return Access.of({ authenticate });
      }),
    );
}
