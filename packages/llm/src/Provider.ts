/**
 * One language model with its retries and its circuit breakers.
 */
import type { StorageUnavailable } from "@parley/core";
import { Clock, Duration, Effect, Exit, Random, Result, Schedule, Scope, Stream } from "effect";
import * as CircuitBreaker from "effect/persistence/CircuitBreaker";
import { ModelFailure } from "./Failure.ts";
import { countAnswer, countFailure } from "./Metrics.ts";
import { callModel, type CallOptions, type CallPart } from "./ModelCall.ts";
import { ping } from "./Ping.ts";
import type { Prompt } from "./Prompt.ts";

/** An answer that has begun. */
export interface Begun {
  readonly provider: string;
  readonly model: string;
  readonly parts: Stream.Stream<CallPart, ModelFailure>;
}

export interface Provider {
  readonly name: string;
  /**
   * The answer, from its first piece on, which comes after as many calls as that takes. Each call is
   * told to `called` before it is made. Fails without any while a circuit is open.
   *
   * @param promptOf the prompt for the given share, 0 to 1, of the model's window
   */
  readonly begin: (
    promptOf: (share: number) => Effect.Effect<Prompt, StorageUnavailable>,
    called: () => void,
  ) => Effect.Effect<Begun, ModelFailure | StorageUnavailable, Scope.Scope>;
  /** For how many more milliseconds it asked not to be called. */
  readonly asksToWait: Effect.Effect<number>;
}

export interface ProviderOptions extends CallOptions {
  /** How many calls may follow a failed one at this provider. */
  readonly retries: number;
}

/** However long a provider asks to be left alone, in milliseconds. */
const longestWait = 3_600_000;

/**
 * Chance alone must not trip it: three calls in ten failing are ten in a row once in 170 000.
 * It stays open for 2 s, then 4 s and so on up to 30 s while its probes fail.
 */
const makeBreaker = CircuitBreaker.make({
  tripPolicy: CircuitBreaker.consecutive(10),
  openDuration: Schedule.min([Schedule.exponential("2 seconds"), Schedule.spaced("30 seconds")]),
  maxOpenDuration: longestWait,
}).pipe(Effect.provide(CircuitBreaker.layerStoreMemory()));

export const makeProvider = (
  options: ProviderOptions,
): Effect.Effect<Provider, never, Scope.Scope> =>
  Effect.gen(function* () {
    const breaker = yield* makeBreaker;
    const { modelId: model, provider } = options.model;
    /** When the provider may be called again, by its own word. */
    let askedToWaitUntil = 0;

    const asksToWait = Effect.map(Clock.currentTimeMillis, (now) =>
      Math.max(0, askedToWaitUntil - now),
    );

    const failIfOpen = Effect.gen(function* () {
      for (const circuit of circuits) {
        const { _tag } = yield* Effect.orDie(breaker.state(circuit));
        if (_tag !== "Closed") return yield* circuitOpen(provider);
      }
    });

    const failed = Effect.fnUntraced(function* (failure: ModelFailure) {
      const { retryAfterMillis: wait } = failure;
      if (wait !== undefined) {
        const until = (yield* Clock.currentTimeMillis) + Math.min(wait, longestWait);
        askedToWaitUntil = Math.max(askedToWaitUntil, until);
      }
      yield* countFailure(provider, failure.reason);
      yield* Effect.logWarning(failure.detail).pipe(
        Effect.annotateLogs({ provider, model, reason: failure.reason }),
      );
    });

    /** One call, up to the first piece of the answer. */
    const once = (prompt: Prompt, called: () => void) =>
      breaker
        .execute(
          Effect.suspend(() => {
            called();
            return Effect.tapError(inOwnScope(callModel(options, prompt)), failed);
          }),
          { key: "begin" satisfies Circuit, classify },
        )
        .pipe(Effect.catchTag("CircuitBreakerError", () => Effect.fail(circuitOpen(provider))));

    /** What comes after the first piece has a circuit of its own: see `Circuit`. */
    const judgeEnd = (end: Effect.Effect<void, ModelFailure>) =>
      Effect.ignore(breaker.execute(end, { key: "end" satisfies Circuit, classify }));

    const begin: Provider["begin"] = Effect.fnUntraced(function* (promptOf, called) {
      yield* failIfOpen;
      let share = 1;
      let prompt = yield* promptOf(share);
      for (let retries = 0; ;) {
        // Looked at just before the call, too, so that no ask is the one that probes.
        const result = yield* Effect.result(Effect.andThen(failIfOpen, once(prompt, called)));
        if (Result.isSuccess(result)) {
          const parts = result.success.pipe(
            Stream.tap((part) =>
              part._tag === "Tokens"
                ? Effect.andThen(judgeEnd(Effect.void), countAnswer(provider))
                : Effect.void,
            ),
            Stream.tapError((failure) =>
              Effect.andThen(failed(failure), judgeEnd(Effect.fail(failure))),
            ),
          );
          return { provider, model, parts };
        }
        const { failure } = result;
        if (failure.tooLong === true && share === 1) {
          share = 0.5;
          prompt = yield* promptOf(share);
          continue;
        }
        if (failure.retry !== true || retries >= options.retries) return yield* failure;
        const wait = 100 * 2 ** retries * (0.5 + (yield* Random.next));
        // Others may be ready sooner.
        if ((yield* asksToWait) > wait) return yield* failure;
        yield* Effect.sleep(wait);
        retries++;
      }
    });

    const probe = ping(options).pipe(
      // Who complains of this one call answers.
      Effect.catchIf(
        ({ ill }) => !ill,
        () => Effect.void,
      ),
      Effect.tapError(failed),
    );

    // An open circuit is probed beside the asks, which never wait for it.
    const bringBack = Effect.fnUntraced(function* (circuit: Circuit) {
      for (let probes = 0; ; probes++) {
        const state = yield* Effect.orDie(breaker.state(circuit));
        if (state._tag === "Closed") {
          if (probes > 0) yield* Effect.logInfo("A language model is asked again");
          return;
        }
        const millis = state._tag === "Open" ? Duration.toMillis(state.retryAfter) : 0;
        if (millis >= 1000) {
          const seconds = Math.round(millis / 1000);
          yield* Effect.logWarning(
            `A language model failed too often, and is left alone for ${seconds} s`,
          );
        }
        // A timer may be early, and then the probe is refused.
        yield* Effect.sleep(Math.max(millis, 10));
        yield* Effect.exit(breaker.execute(probe, { key: circuit, classify }));
      }
    });
    yield* Effect.forEach(circuits, (circuit) =>
      breaker.transitions.pipe(
        Stream.filter(({ key, to }) => key === circuit && to === "Open"),
        // Of what came while it was brought back, nothing is left to do.
        Stream.runForEach(() => bringBack(circuit)),
        Effect.annotateLogs({ provider, model }),
        Effect.forkScoped({ startImmediately: true }),
      ),
    );

    return { begin, asksToWait, name: provider };
  });

/**
 * `begin` judges calls up to the first piece, so that long answers do not hide that no other begins.
 * `end` judges the rest, or a provider that breaks off every answer would never be left.
 */
const circuits = ["begin", "end"] as const;
type Circuit = (typeof circuits)[number];

const classify = (exit: Exit.Exit<unknown, ModelFailure>): CircuitBreaker.Outcome => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success;
  const [reason] = exit.cause.reasons;
  if (reason?._tag !== "Fail") return CircuitBreaker.failure();
  const { ill, retryAfterMillis: retryAfter } = reason.error;
  return ill ? CircuitBreaker.failure({ retryAfter }) : CircuitBreaker.ignored;
};

const circuitOpen = (provider: string) =>
  new ModelFailure({
    reason: "circuit_open",
    detail: `${provider} failed too often just before`,
    ill: false,
  });

/** What is acquired is released at once if the effect fails, else with the surrounding scope. */
const inOwnScope = <A, E>(
  effect: Effect.Effect<A, E, Scope.Scope>,
): Effect.Effect<A, E, Scope.Scope> =>
  Effect.uninterruptibleMask((restore) =>
    Effect.gen(function* () {
      const scope = yield* Scope.fork(yield* Effect.scope);
      return yield* restore(Scope.provide(effect, scope)).pipe(
        Effect.onError((cause) => Scope.close(scope, Exit.failCause(cause))),
      );
    }),
  );
