/**
 * A language model behind its own circuit breaker.
 */
import { CurrentAsk, inSpan } from "@parley/core/ports";
import { Duration, Effect, Exit, Metric, Option, Schedule, Stream } from "effect";
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
 * An open circuit stays open for 2 s, 4 s and so on up to 30 s, or for a longer `Retry-After`, up to an hour. Then a
 * single call tries the provider.
 */
const makeBreaker = (failures: number) =>
  CircuitBreaker.make({
    tripPolicy: CircuitBreaker.consecutive(failures),
    openDuration: Schedule.min([Schedule.exponential("2 seconds"), Schedule.spaced("30 seconds")]),
    maxOpenDuration: "1 hour",
  }).pipe(
    // Every visitor has a circuit, so those of visitors who left are dropped soon.
    Effect.provide(CircuitBreaker.layerStoreMemory({ idleTimeToLive: "10 minutes" })),
  );

/**
 * Ten failed questions in a row open a circuit. With a provider that fails three calls in ten, this happens at most
 * once in 170,000 questions.
 */
const maxFailures = 10;
/** One key's questions must not take the model away from everybody, so a failure of the provider shows in three. */
const minKeys = 3;
const everybody = "everybody";

/** The circuit's key of an ask: its visitor or else its API key. Asks without an API key have one circuit. */
const keyOf = ({ apiKeyId, visitor }: typeof CurrentAsk.Service): string =>
  apiKeyId === null ? "" : `${apiKeyId} ${visitor ?? ""}`;

export const makeProvider = (options: CallOptions) =>
  Effect.gen(function* () {
    const { modelId: model, provider: name } = options.model;
    const attributes = { provider: name, model };
    const update = (metric: Metric.Metric<number, any>, value: number, more = {}) =>
      Metric.update(Metric.withAttributes(metric, { ...attributes, ...more }), value);
    const breakerOfKeys = yield* makeBreaker(maxFailures);
    const breaker = yield* makeBreaker(1);
    let shownState: number | undefined;
    /** Shows the circuit that changed last; an answer shows that the model is in use. */
    const show = (state: number) =>
      Effect.suspend(() => {
        if (state === shownState) return Effect.void;
        shownState = state;
        return update(circuit, state);
      });
    yield* show(circuitStates.Closed);
    // These counters start at zero, because a rate misses the step to the first value of a counter.
    for (const reason of failureReasons) yield* update(failures, 0, { reason });
    yield* update(answers, 0);
    for (const direction of ["input", "output"]) yield* update(tokens, 0, { direction });
    for (const { transitions } of [breaker, breakerOfKeys]) {
      yield* transitions.pipe(
        Stream.tap(({ to }) => show(circuitStates[to])),
        Stream.runForEach(logTransition),
        Effect.annotateLogs(attributes),
        Effect.forkScoped({ startImmediately: true }),
      );
    }

    let failedQuestions = 0;
    /** The first keys that have failed since the last answer. */
    const failedKeys = new Set<string>();
    /** Pauses the model for everybody. A question's repeated failures reveal nothing new. */
    const classify =
      (question: { hasFailed: boolean }, key: string) => (exit: Exit.Exit<unknown, ModelFailure>) =>
        Effect.map(Effect.orDie(breaker.state(everybody)), ({ _tag }) => {
          const outcome = outcomeOf(exit);
          if (outcome._tag === "Success") {
            failedQuestions = 0;
            failedKeys.clear();
          }
          if (outcome._tag !== "Failure") return outcome;
          if (!question.hasFailed) failedQuestions++;
          if (failedKeys.size < minKeys) failedKeys.add(key);
          const hasFailed = failedQuestions >= maxFailures && failedKeys.size >= minKeys;
          return hasFailed || _tag === "HalfOpen" ? outcome : CircuitBreaker.ignored;
        });
    /** Pauses the model for one key. */
    const classifyForKey =
      (question: { hasFailed: boolean }, key: string) => (exit: Exit.Exit<unknown, ModelFailure>) =>
        Effect.map(Effect.orDie(breakerOfKeys.state(key)), ({ _tag }) => {
          const outcome = outcomeOf(exit);
          const isRepeated = question.hasFailed && _tag === "Closed";
          question.hasFailed ||= outcome._tag === "Failure";
          return isRepeated && outcome._tag === "Failure" ? CircuitBreaker.ignored : outcome;
        });

    /**
     * Calls the model as {@link callModel} does. While the circuit is open, or half-open with another call in progress,
     * the call fails with `circuit_open` and sends no request. All failures of a question together count once
     * towards opening the circuit.
     */
    const call = Effect.fnUntraced(function* (
      question: { hasFailed: boolean },
      messages: ReadonlyArray<Message>,
      emit: (text: string) => unknown,
    ) {
      const key = keyOf(yield* CurrentAsk);
      return yield* callModel(options, messages, emit).pipe(
        Effect.tap(({ completion, prompt }) =>
          Effect.all([
            Effect.annotateCurrentSpan({
              "gen_ai.usage.input_tokens": prompt,
              "gen_ai.usage.output_tokens": completion,
            }),
            show(circuitStates.Closed),
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
        (attempt) =>
          breaker.execute(attempt, { key: everybody, classify: classify(question, key) }),
        Effect.catchTag("CircuitBreakerError", () => Effect.fail(paused)),
        (attempt) =>
          breakerOfKeys.execute(attempt, { key, classify: classifyForKey(question, key) }),
        Effect.catchTag("CircuitBreakerError", () => Effect.fail(paused)),
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
    });
    return { name, model, call };
  });

export type Provider = Effect.Success<ReturnType<typeof makeProvider>>;

const paused = makeFailure("circuit_open", "paused after too many failures");

const logTransition = (transition: CircuitBreaker.Transition) => {
  if (transition.to === "HalfOpen") return Effect.void;
  const whom = transition.key === everybody ? "" : " for one key or visitor";
  if (transition.to === "Closed") return Effect.logInfo(`A language model is in use again${whom}`);
  const seconds = Math.round(Duration.toSeconds(transition.retryAfter));
  return Effect.logWarning(`A language model failed too often; pausing it${whom} for ${seconds} s`);
};

const outcomeOf = (exit: Exit.Exit<unknown, ModelFailure>): CircuitBreaker.Outcome => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success;
  const failure = Option.getOrNull(Exit.findErrorOption(exit));
  return failure?.is("provider") === true
    ? CircuitBreaker.failure({ retryAfter: failure.retryAfterMillis })
    : CircuitBreaker.ignored;
};
