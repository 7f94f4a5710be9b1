/**
 * Whether a language model answers at all.
 */
import { Duration, Effect, Stream } from "effect";
import { ModelFailure } from "./Failure.ts";
import { callModel, type CallOptions, type LanguageModel } from "./ModelCall.ts";
import type { Prompt } from "./Prompt.ts";

const prompt: Prompt = { system: null, messages: [{ role: "user", content: "ping" }] };

const patience = Duration.seconds(30);

const tooLate = new ModelFailure({
  reason: "timeout",
  detail: "the language model did not finish a probe in time",
  ill: true,
});

/**
 * A small call from its begin to its end, with a text of our own. A model that has no text in so few tokens
 * answers, too.
 */
export const ping = (options: CallOptions): Effect.Effect<void, ModelFailure> =>
  Effect.scoped(
    Effect.flatMap(callModel({ ...options, maxOutputTokens: 1 }, prompt), Stream.runDrain),
  ).pipe(
    Effect.timeoutOrElse({ duration: patience, orElse: () => Effect.fail(tooLate) }),
    Effect.catchIf(
      ({ reason }) => reason === "empty",
      () => Effect.void,
    ),
  );

/** The same with a model that nothing else is known of. */
export const tryModel = (model: LanguageModel): Effect.Effect<void, ModelFailure> =>
  Effect.promise(() => import("ai")).pipe(
    Effect.flatMap(({ streamText }) =>
      ping({ streamText, model, maxOutputTokens: 1, silence: patience }),
    ),
  );
