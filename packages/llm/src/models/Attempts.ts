/**
 * One attempt after the other, at one provider or several, until an answer is complete.
 */
import { AnswerUnavailable, type AnswerPart } from "@parley/core";
import { Clock, Duration, Effect, Option, Schedule, Stream } from "effect";
import type { ModelFailure } from "./ModelFailure.ts";
import type { Prompt } from "./Prompt.ts";
import type { Provider } from "./Provider.ts";
import { retrySchedule } from "./Retry.ts";
import { usageSince } from "./Usage.ts";

/**
 * The next attempt goes to the provider that may be called soonest; of several, to the first of them. A provider that
 * failed pauses as {@link retrySchedule} says, and has no more attempts once that ends. A model that
 * withholds its answer ends the attempts. A prompt that is too long is halved at once, up to three times.
 *
 * @param promptOf the prompt of at most so many tokens
 */
export const answerWith = (
  providers: ReadonlyArray<Provider>,
  promptOf: (tokens: number) => Prompt,
  tokens: number,
  retries: number,
): Stream.Stream<AnswerPart, AnswerUnavailable> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const startedAt = yield* Clock.currentTimeMillis;
      let calls = 0;
      const failures: Array<ModelFailure> = [];
      let candidates = yield* Effect.forEach(providers, (provider) =>
        Effect.map(Schedule.toStep(retrySchedule(retries)), (pauseAfter) => ({
          provider,
          pauseAfter,
          readyAt: startedAt,
          prompt: promptOf(tokens),
          halvings: 3,
        })),
      );
      const attempt: Stream.Stream<AnswerPart, AnswerUnavailable> = Stream.unwrap(
        Effect.gen(function* () {
          const [next] = candidates.toSorted((a, b) => a.readyAt - b.readyAt);
          if (next === undefined) return Stream.fail(unavailable(failures));
          const { prompt, provider } = next;
          yield* Effect.sleep(Math.max(0, next.readyAt - (yield* Clock.currentTimeMillis)));
          calls++;
          return provider.answer(prompt).pipe(
            Stream.mapEffect((part) =>
              part._tag === "Tokens"
                ? usageSince(startedAt, {
                    provider: provider.name,
                    model: provider.model,
                    promptTokens: part.prompt,
                    completionTokens: part.completion,
                    attempts: calls,
                  })
                : Effect.succeed<AnswerPart>(part),
            ),
            Stream.catch((error) => Stream.unwrap(after(error, next))),
          );
        }),
      );

      const after = Effect.fnUntraced(function* (
        error: ModelFailure,
        failed: (typeof candidates)[number],
      ) {
        failures.push(error);
        if (error.reason === "circuit_open") calls--;
        if (error.reason === "context_length" && failed.halvings > 0) {
          failed.halvings--;
          failed.prompt = promptOf(failed.prompt.tokens / 2);
          failed.readyAt = 0;
        } else {
          const now = yield* Clock.currentTimeMillis;
          const paused = yield* Effect.option(failed.pauseAfter(now, error));
          if (Option.isSome(paused)) failed.readyAt = now + Duration.toMillis(paused.value[1]);
          else candidates = candidates.filter((candidate) => candidate !== failed);
        }
        if (error.reason === "content_filter") return Stream.fail(unavailable([error]));
        if (candidates.length === 0) return Stream.fail(unavailable(failures));
        return Stream.concat(Stream.make<[AnswerPart]>({ _tag: "Restart" }), attempt);
      });

      return attempt;
    }),
  );

const unavailable = (failures: ReadonlyArray<ModelFailure>): AnswerUnavailable =>
  new AnswerUnavailable({
    reason: [...new Set(failures.map(({ detail }) => detail))].join("; "),
  });
