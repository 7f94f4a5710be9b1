/**
 * One language model with its circuit breaker.
 */
import { Duration, Effect, Exit, Metric, Schedule, Scope, Stream } from "effect";
import * as CircuitBreaker from "effect/persistence/CircuitBreaker";
import { failure, type ModelFailure } from "./ModelFailure.ts";
import { callModel, type CallOptions, type CallPart } from "./ModelCall.ts";
import type { Prompt } from "./Prompt.ts";

export interface Provider {
  readonly name: string;
  readonly model: string;
  /** One call; none is made while the circuit is open. */
  readonly answer: (prompt: Prompt) => Stream.Stream<CallPart, ModelFailure>;
}

const failures = Metric.counter("parley_model_failures", {
  description: "Calls of language models that failed",
  incremental: true,
});
const answers = Metric.counter("parley_answers", {
  description: "Answers that language models completed",
  incremental: true,
});

/**
 * Chance alone must not trip it: three calls in ten failing are ten in a row once in 170 000.
 * It stays open for 2 s, then 4 s and so on up to 30 s while the asks that try it fail.
 */
const makeBreaker = CircuitBreaker.make({
  tripPolicy: CircuitBreaker.consecutive(10),
  openDuration: Schedule.min([Schedule.exponential("2 seconds"), Schedule.spaced("30 seconds")]),
  maxOpenDuration: "1 hour",
}).pipe(Effect.provide(CircuitBreaker.layerStoreMemory()));

const key = "calls";

const untagged =
  "A language model sends its reasoning as text with </think>, but without <think>: a stream that showed it fails. " +
  "Set the reasoning parser of the model's server";

export const makeProvider = (
  options: Omit<CallOptions, "habits">,
): Effect.Effect<Provider, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { modelId: model, provider: name } = options.model;
    const annotated = Effect.annotateLogs({ provider: name, model });
    const callOptions = { ...options, habits: { opensThinking: false } };
    const breaker = yield* makeBreaker;

    yield* breaker.transitions.pipe(
      Stream.runForEach((transition) => {
        if (transition.to === "HalfOpen") return Effect.void;
        if (transition.to === "Closed") return Effect.logInfo("A language model is asked again");
        const seconds = Math.round(Duration.toSeconds(transition.retryAfter));
        return Effect.logWarning(
          `A language model failed too often, and is left alone for ${seconds} s`,
        );
      }),
      annotated,
      Effect.forkScoped({ startImmediately: true }),
    );

    const failed = ({ detail, reason }: ModelFailure) =>
      Effect.andThen(
        Metric.update(Metric.withAttributes(failures, { provider: name, reason }), 1),
        annotated(Effect.annotateLogs(Effect.logWarning(detail), { reason })),
      );

    /**
     * An answer that begins closes a circuit that was open, and does not count otherwise: the circuit of a provider that
     * breaks off every answer must open, too.
     */
    const outcomeOfBegin = (exit: Exit.Exit<unknown, ModelFailure>) =>
      Exit.isFailure(exit)
        ? outcomeOf(exit)
        : Effect.map(Effect.orDie(breaker.state(key)), ({ _tag }) =>
            _tag === "HalfOpen" ? CircuitBreaker.success : CircuitBreaker.ignored,
          );

    const ended = (end: Effect.Effect<void, ModelFailure>) =>
      Effect.ignore(breaker.execute(end, { key, classify: outcomeOf }));
    const seen = ({ _tag }: CallPart) => {
      switch (_tag) {
        case "Delta":
          return Effect.void;
        case "Restart":
          return annotated(Effect.logWarning(untagged));
        case "Tokens":
          return Effect.andThen(
            ended(Effect.void),
            Metric.update(Metric.withAttributes(answers, { provider: name }), 1),
          );
      }
    };
    const answer = (prompt: Prompt) =>
      breaker
        .execute(Effect.tapError(callModel(callOptions, prompt), failed), {
          key,
          classify: outcomeOfBegin,
        })
        .pipe(
          Effect.catchTag("CircuitBreakerError", () =>
            Effect.fail(failure("circuit_open", `${name} failed too often just before`)),
          ),
          Effect.map((parts) =>
            parts.pipe(
              Stream.tap(seen),
              Stream.tapError((error) => Effect.andThen(failed(error), ended(Effect.fail(error)))),
            ),
          ),
          Stream.unwrap,
        );

    return { name, model, answer };
  });

const outcomeOf = (exit: Exit.Exit<unknown, ModelFailure>): CircuitBreaker.Outcome => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success;
  const [reason] = exit.cause.reasons;
  if (reason?._tag !== "Fail") return CircuitBreaker.failure();
  const { countsAgainstProvider, retryAfterMillis: retryAfter } = reason.error;
  return countsAgainstProvider ? CircuitBreaker.failure({ retryAfter }) : CircuitBreaker.ignored;
};
