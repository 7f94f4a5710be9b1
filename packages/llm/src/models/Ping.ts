/**
 * Whether a language model answers at all.
 */
import { Duration, Effect, Stream } from "effect";
import { failure, type FailureReason, type ModelFailure } from "./ModelFailure.ts";
import { callModel, loadAi, type LanguageModel } from "./ModelCall.ts";

const prompt = { system: null, messages: [{ role: "user", content: "ping" }], tokens: 1 } as const;

const timeout = Duration.seconds(30);
const tooLate = failure("timeout", "the language model did not finish a probe in time");

/** Failures of a model that is there, and has no text in so few tokens. */
const signsOfLife: ReadonlySet<FailureReason> = new Set<FailureReason>([
  "context_length",
  "empty",
  "output_limit",
  "reasoning_only",
]);

/** A call of one token, with a text of our own. A model that refuses so few tokens answers, too. */
export const tryModel = (model: LanguageModel): Effect.Effect<void, ModelFailure> =>
  loadAi.pipe(
    Effect.flatMap((ai) => {
      const habits = { opensThinking: false };
      return callModel({ ai, model, maxOutputTokens: 1, idleTimeout: timeout, habits }, prompt);
    }),
    Effect.flatMap(Stream.runDrain),
    Effect.scoped,
    Effect.timeoutOrElse({ duration: timeout, orElse: () => Effect.fail(tooLate) }),
    Effect.catchIf(
      ({ reason }) => signsOfLife.has(reason),
      () => Effect.void,
    ),
  );
