/**
 * One language model behind a circuit breaker of its own.
 */
import { endSpan, isTraced } from "@parley/core";
import { Duration, Effect, Exit, Metric, Schedule, Scope, Stream, Tracer } from "effect";
import * as CircuitBreaker from "effect/persistence/CircuitBreaker";
import { callModel, type CallOptions, type CallPart } from "./ModelCall.ts";
import { makeFailure, type ModelFailure } from "./ModelFailure.ts";
import type { Prompt } from "./Prompt.ts";

export interface Provider {
  readonly name: string;
  readonly model: string;
  /** One call. While the circuit is open, it fails with `circuit_open` and no request is sent. */
  readonly answer: (prompt: Prompt) => Stream.Stream<CallPart, ModelFailure>;
}

const failures = Metric.counter("parley.model.failures", {
  description: "Calls of language models that failed",
  incremental: true,
});
const answers = Metric.counter("parley.model.answers", {
  description: "Answers that language models completed",
  incremental: true,
});
const tokens = Metric.counter("parley.model.tokens", {
  description: "Tokens of completed answers, as the providers report them",
  incremental: true,
});
const circuit = Metric.gauge("parley.model.circuit", {
  description: "Circuit of a model: 0 closed, 1 tried again, 2 open: it is not called",
});
const circuitStates = { Closed: 0, HalfOpen: 1, Open: 2 };

/**
 * Ten failures in a row open the circuit: a provider that fails three calls in ten does so once in 170 000 calls. It
 * stays open for 2 s, 4 s and so on up to 30 s, or as long as `Retry-After` asks, up to an hour.
 */
const makeBreaker = CircuitBreaker.make({
  tripPolicy: CircuitBreaker.consecutive(10),
  openDuration: Schedule.min([Schedule.exponential("2 seconds"), Schedule.spaced("30 seconds")]),
  maxOpenDuration: "1 hour",
}).pipe(Effect.provide(CircuitBreaker.layerStoreMemory()));

const key = "calls";

export const makeProvider = (options: CallOptions): Effect.Effect<Provider, never, Scope.Scope> =>
  Effect.gen(function* () {
    const { modelId: model, provider: name } = options.model;
    const attributes = { provider: name, model };
    const annotate = Effect.annotateLogs(attributes);
    const update = (metric: Metric.Metric<number, any>, value: number, more = {}) =>
      Metric.update(Metric.withAttributes(metric, { ...attributes, ...more }), value);
    const breaker = yield* makeBreaker;
    const setCircuit = (to: keyof typeof circuitStates) => update(circuit, circuitStates[to]);
    yield* setCircuit("Closed");
    yield* breaker.transitions.pipe(
      Stream.tap(({ to }) => setCircuit(to)),
      Stream.runForEach(logTransition),
      annotate,
      Effect.forkScoped({ startImmediately: true }),
    );

    const report = ({ detail, reason }: ModelFailure) =>
      Effect.andThen(
        update(failures, 1, { reason }),
        annotate(Effect.annotateLogs(Effect.logWarning(detail), { reason })),
      );
    /**
     * An answer that begins closes a half-open circuit. It does not reset the count of failures: a provider that breaks
     * off every answer must open its circuit, too.
     */
    const outcomeOfBegin = (exit: Exit.Exit<unknown, ModelFailure>) =>
      Exit.isFailure(exit)
        ? outcomeOf(exit)
        : Effect.map(Effect.orDie(breaker.state(key)), ({ _tag }) =>
            _tag === "HalfOpen" ? CircuitBreaker.success : CircuitBreaker.ignored,
          );
    const recordEnd = (end: Effect.Effect<void, ModelFailure>) =>
      Effect.ignore(breaker.execute(end, { key, classify: outcomeOf }));
    const complete = ({ completion, prompt }: Extract<CallPart, { _tag: "Tokens" }>) =>
      Effect.all([
        recordEnd(Effect.void),
        update(answers, 1),
        update(tokens, prompt, { direction: "input" }),
        update(tokens, completion, { direction: "output" }),
      ]);

    const answer = (prompt: Prompt) =>
      breaker
        .execute(Effect.tapError(callModel(options, prompt), report), {
          key,
          classify: outcomeOfBegin,
        })
        .pipe(
          Effect.catchTag("CircuitBreakerError", () =>
            Effect.fail(makeFailure("circuit_open", `${name} failed too often just before`)),
          ),
          Effect.map((parts) =>
            parts.pipe(
              Stream.tap((part) => (part._tag === "Tokens" ? complete(part) : Effect.void)),
              Stream.tapError((error) =>
                Effect.andThen(report(error), recordEnd(Effect.fail(error))),
              ),
            ),
          ),
          Stream.unwrap,
          inCallSpan(attributes),
        );

    return { name, model, answer };
  });

/** By OpenTelemetry's conventions for generative AI. */
const inCallSpan =
  ({ model, provider }: { readonly model: string; readonly provider: string }) =>
  <A, E>(call: Stream.Stream<A, E>): Stream.Stream<A, E> =>
    Effect.gen(function* () {
      if (!(yield* isTraced)) return call;
      const span = yield* Effect.acquireRelease(
        Effect.makeSpan(`chat ${model}`, {
          kind: "client",
          attributes: {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": provider,
            "gen_ai.request.model": model,
          },
        }),
        endSpan,
      );
      return Stream.provideService(call, Tracer.ParentSpan, span);
    }).pipe(Stream.unwrap);

const logTransition = (transition: CircuitBreaker.Transition) => {
  if (transition.to === "HalfOpen") return Effect.void;
  if (transition.to === "Closed") return Effect.logInfo("A language model is called again");
  const seconds = Math.round(Duration.toSeconds(transition.retryAfter));
  return Effect.logWarning(`A language model failed too often, and is not called for ${seconds} s`);
};

const outcomeOf = (exit: Exit.Exit<unknown, ModelFailure>): CircuitBreaker.Outcome => {
  if (Exit.isSuccess(exit)) return CircuitBreaker.success;
  const [reason] = exit.cause.reasons;
  if (reason?._tag !== "Fail") return CircuitBreaker.failure();
  const { countsAgainstProvider, retryAfterMillis: retryAfter } = reason.error;
  return countsAgainstProvider ? CircuitBreaker.failure({ retryAfter }) : CircuitBreaker.ignored;
};
