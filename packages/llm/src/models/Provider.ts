/**
 * A language model behind its own circuit breaker.
 */
import { inSpan } from "@parley/core/ports";
import { Duration, Effect, Exit, Metric, Schedule, Stream } from "effect";
import * as CircuitBreaker from "effect/persistence/CircuitBreaker";
import { callModel, type CallOptions } from "./ModelCall.ts";
import { failureReasons, makeFailure, type ModelFailure } from "./ModelFailure.ts";
import type { Message } from "./Prompt.ts";

const counter = (name: string, description: string) =>
  Metric.counter(name, { description, incremental: true });
const failures = counter("parley.model.failures", "Failed calls to language models");
const answers = counter("parley.model.answers", "Answers completed by language models");
const tokens = counter(
  "parley.model.tokens",
  "Tokens used by completed answers and their prompts, as reported by the providers",
);
const circuit = Metric.gauge("parley.model.circuit", {
  description:
    "State of a model's circuit breaker: 0 closed, 1 half-open (one call tests the model), 2 open (the model is not called)",
});
const circuitStates = { Closed: 0, HalfOpen: 1, Open: 2 };

/**
 * Ten failed questions in a row open the circuit. With a provider that fails three calls in ten, this happens at most
 * once in 170,000 questions. The circuit stays open for 2 s, 4 s and so on up to 30 s, or for a longer `Retry-After`,
 * up to an hour. Then a single call tries the provider.
 */
const makeBreaker = CircuitBreaker.make({
  tripPolicy: CircuitBreaker.consecutive(10),
  openDuration: Schedule.min([Schedule.exponential("2 seconds"), Schedule.spaced("30 seconds")]),
  maxOpenDuration: "1 hour",
}).pipe(Effect.provide(CircuitBreaker.layerStoreMemory()));

export const makeProvider = (options: CallOptions) =>
  Effect.gen(function* () {
    const { modelId: model, provider: name } = options.model;
    const attributes = { provider: name, model };
    const update = (metric: Metric.Metric<number, any>, value: number, more = {}) =>
      Metric.update(Metric.withAttributes(metric, { ...attributes, ...more }), value);
    const breaker = yield* makeBreaker;
    yield* update(circuit, circuitStates.Closed);
    // These counters start at zero, because a rate misses the step to the first value of a counter.
    for (const reason of failureReasons) yield* update(failures, 0, { reason });
    yield* update(answers, 0);
    for (const direction of ["input", "output"]) yield* update(tokens, 0, { direction });
    yield* breaker.transitions.pipe(
      Stream.tap(({ to }) => update(circuit, circuitStates[to])),
      Stream.runForEach(logTransition),
      Effect.annotateLogs(attributes),
      Effect.forkScoped({ startImmediately: true }),
    );

    /** Ignores repeated failures of a question, which reveal nothing new, unless the circuit is half-open. */
    const outcomeFor =
      (question: { hasFailed: boolean }) => (exit: Exit.Exit<unknown, ModelFailure>) =>
        Effect.map(Effect.orDie(breaker.state("calls")), ({ _tag }) => {
          const isRepeated = question.hasFailed && _tag === "Closed" && Exit.isFailure(exit);
          const outcome = isRepeated ? CircuitBreaker.ignored : outcomeOf(exit);
          question.hasFailed ||= outcome._tag === "Failure";
          return outcome;
        });

    /**
     * Calls the model as {@link callModel} does. While the circuit is open, or half-open with another call in progress,
     * the call fails with `circuit_open` and sends no request. All failures of a question together count once
     * towards opening the circuit.
     */
    const call = (
      question: { hasFailed: boolean },
      messages: ReadonlyArray<Message>,
      emit: (text: string) => unknown,
    ) =>
      callModel(options, messages, emit).pipe(
        Effect.tap(({ completion, prompt }) =>
          Effect.all([
            Effect.annotateCurrentSpan({
              "gen_ai.usage.input_tokens": prompt,
              "gen_ai.usage.output_tokens": completion,
            }),
            update(answers, 1),
            update(tokens, prompt, { direction: "input" }),
            update(tokens, completion, { direction: "output" }),
          ]),
        ),
        Effect.tapError(({ detail, reason }) =>
          Effect.logWarning(`A call to a language model failed: ${detail}`).pipe(
            Effect.annotateLogs({ ...attributes, reason }),
            Effect.andThen(update(failures, 1, { reason })),
          ),
        ),
        (attempt) => breaker.execute(attempt, { key: "calls", classify: outcomeFor(question) }),
        Effect.catchTag("CircuitBreakerError", () =>
          Effect.fail(makeFailure("circuit_open", "paused after too many failures")),
        ),
        // The span follows OpenTelemetry's conventions for generative AI.
        (attempt) =>
          inSpan(
            attempt,
            `chat ${model}`,
            {
              "gen_ai.operation.name": "chat",
              "gen_ai.provider.name": name,
              "gen_ai.request.model": model,
            },
            "client",
          ),
      );
    return { name, model, call };
  });

export type Provider = Effect.Success<ReturnType<typeof makeProvider>>;

const logTransition = (transition: CircuitBreaker.Transition) => {
  if (transition.to === "HalfOpen") return Effect.void;
  if (transition.to === "Closed") return Effect.logInfo("A language model is in use again");
  const seconds = Math.round(Duration.toSeconds(transition.retryAfter));
  return Effect.logWarning(`A language model failed too often; pausing it for ${seconds} s`);
};

const outcomeOf = (exit: Exit.Exit<unknown, ModelFailure>): CircuitBreaker.Outcome => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success;
  const [reason] = exit.cause.reasons;
  if (reason?._tag !== "Fail") return CircuitBreaker.failure();
  const { retryAfterMillis: retryAfter, scope } = reason.error;
  return scope === "question" ? CircuitBreaker.ignored : CircuitBreaker.failure({ retryAfter });
};
