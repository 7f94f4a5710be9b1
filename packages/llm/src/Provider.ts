/**
 * One language model with its retries and its circuit breakers.
 */
import type { StorageUnavailable } from "@parley/core";
import { Duration, Effect, Exit, Random, Result, Schedule, Scope, Stream } from "effect";
import * as CircuitBreaker from "effect/persistence/CircuitBreaker";
import { ModelFailure } from "./Failure.ts";
import { countAnswer, countFailure } from "./Metrics.ts";
import { callModel, type CallOptions, type CallPart } from "./ModelCall.ts";
import type { Prompt } from "./Prompt.ts";

/** An answer that has begun. */
export interface Begun {
  readonly provider: string;
  readonly model: string;
  readonly parts: Stream.Stream<CallPart, ModelFailure>;
}

export interface Provider {
  /**
   * The answer, from its first piece on, which comes after as many calls as that takes. Each call is
   * told to `called` before it is made.
   *
   * @param promptOf the prompt for the given share, 0 to 1, of the model's window
   */
  readonly begin: (
    promptOf: (share: number) => Effect.Effect<Prompt, StorageUnavailable>,
    called: () => void,
  ) => Effect.Effect<Begun, ModelFailure | StorageUnavailable, Scope.Scope>;
}

export interface ProviderOptions extends CallOptions {
  /** How many calls may follow a failed one at this provider. */
  readonly retries: number;
}

/** A longer wait than this is left to the next provider. */
const longestWait = 10_000;

/**
 * Chance alone must not trip it: three calls in ten failing are ten in a row once in 170 000.
 * It stays open for 2 s, then 4 s and so on up to 30 s while its probes fail.
 */
const makeBreaker = CircuitBreaker.make({
  tripPolicy: CircuitBreaker.consecutive(10),
  openDuration: Schedule.min([Schedule.exponential("2 seconds"), Schedule.spaced("30 seconds")]),
}).pipe(Effect.provide(CircuitBreaker.layerStoreMemory()));

export const makeProvider = (
  options: ProviderOptions,
): Effect.Effect<Provider, never, Scope.Scope> =>
  Effect.gen(function* () {
    const breaker = yield* makeBreaker;
    const { modelId: model, provider } = options.model;

    const isOpen = (circuit: Circuit) =>
      Effect.match(breaker.state(circuit), {
        onFailure: () => false,
        onSuccess: (state) => state._tag === "Open" && Duration.toMillis(state.retryAfter) > 0,
      });

    const failed = (failure: ModelFailure) =>
      Effect.andThen(
        countFailure(provider, failure.reason),
        Effect.logWarning(failure.detail).pipe(
          Effect.annotateLogs({ provider, model, reason: failure.reason }),
        ),
      );

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
      if ((yield* isOpen("begin")) || (yield* isOpen("end"))) return yield* circuitOpen(provider);
      let share = 1;
      let prompt = yield* promptOf(share);
      for (let retries = 0; ;) {
        const result = yield* Effect.result(once(prompt, called));
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
        const backoff = 100 * 2 ** retries * (0.5 + (yield* Random.next));
        const wait = Math.max(failure.retryAfterMillis ?? 0, backoff);
        if (wait > longestWait || (yield* isOpen("begin"))) return yield* failure;
        yield* Effect.sleep(wait);
        retries++;
      }
    });

    return { begin };
  });

/**
 * `begin` judges calls up to the first piece, so that a probe does not have to wait for a long answer.
 * `end` judges the rest, or a provider that breaks off every answer would never be left.
 */
type Circuit = "begin" | "end";

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
