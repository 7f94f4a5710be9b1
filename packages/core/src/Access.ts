/**
 * Who asks: from the text of an API key to the chatbot that it opens (section 5).
 */
import { Cache, Clock, Context, Duration, Effect, Exit, Layer, Schedule, Stream } from "effect";
import { Digest, Mac } from "effect/crypto";
import { hashKey, keyId } from "./ApiKey.ts";
import type { Chatbot } from "./Chatbot.ts";
import { ChatbotDirectory, type Scope } from "./ChatbotDirectory.ts";
import { KeyRejected, type StorageUnavailable } from "./Errors.ts";
import { keyState } from "./KeyState.ts";

/** What a valid key allows. */
export interface Principal {
  readonly keyId: string;
  readonly scopes: ReadonlyArray<Scope>;
  readonly chatbot: Chatbot;
}

/** How many keys are remembered. */
const capacity = 10_000;

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
                : Duration.seconds(30),
        });

        yield* directory.changed.pipe(
          Stream.runForEach(() => Cache.invalidateAll(opened)),
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

        const authenticate = Effect.fnUntraced(function* (key: string) {
          const id = keyId(key);
          if (id === null) return yield* new KeyRejected();
          const found = yield* Cache.get(opened, id);
          const hash = yield* Effect.provideService(hashKey(key), Digest.Digest, digest);
          const genuine = Mac.timingSafeEqual(hash, found?.hash ?? nobody);
          if (!genuine || found === null) return yield* new KeyRejected();
          const now = yield* Clock.currentTimeMillis;
          const state = keyState({ expiresAt: found.expiresAt, revokedAt: null }, now);
          if (state !== "live") return yield* new KeyRejected();
          noteUse(id, now);
          return { keyId: id, scopes: found.scopes, chatbot: found.chatbot };
        });

        return Access.of({ authenticate });
      }),
    );
}
