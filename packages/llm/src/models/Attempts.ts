/**
 * Attempts at one answer, at one provider or several, until one is complete.
 */
import { AnswerUnavailable, type AnswerPart } from "@parley/core";
import { Clock, Duration, Effect, Option, Schedule, Stream } from "effect";
import { retrySchedule, type ModelFailure } from "./ModelFailure.ts";
import type { Prompt } from "./Prompt.ts";
import type { Provider } from "./Provider.ts";

const maxHalvings = 3;

/**
 * Each attempt goes to the provider that is ready first, and of several to the first in the list. A provider that failed
 * is ready again after the pause of {@link retrySchedule}, and drops out when that schedule ends. A refusal of the prompt
 * as too long halves it, up to three times, without a pause. A content filter ends all attempts.
 *
 * @param providers at least one
 * @param promptOf builds a prompt of at most that many tokens
 * @param tokens the size of the first prompt
 * @param retries how many calls may follow a failed one at the same provider
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
      const details = new Set<string>();
      let calls = 1;
      let candidates = yield* Effect.forEach(providers, (provider) =>
        Effect.map(Schedule.toStep(retrySchedule(retries)), (nextPause) => ({
          provider,
          nextPause,
          readyAt: startedAt,
          prompt: promptOf(tokens),
          halvings: 0,
        })),
      );
      type Candidate = (typeof candidates)[number];

      const attempt: Stream.Stream<AnswerPart, AnswerUnavailable> = Stream.unwrap(
        Effect.gen(function* () {
          const next = candidates.toSorted((a, b) => a.readyAt - b.readyAt)[0]!;
          yield* Effect.sleep(Math.max(0, next.readyAt - (yield* Clock.currentTimeMillis)));
          const { model, name: provider } = next.provider;
          return next.provider.answer(next.prompt).pipe(
            Stream.mapEffect((part): Effect.Effect<AnswerPart> =>
              part._tag === "Delta"
                ? Effect.succeed(part)
                : Effect.map(Clock.currentTimeMillis, (now) => ({
                    _tag: "Usage",
                    usage: {
                      provider,
                      model,
                      promptTokens: part.prompt,
                      completionTokens: part.completion,
                      attempts: calls,
                      latencyMillis: now - startedAt,
                    },
                  })),
            ),
            Stream.catch((failure) => Stream.unwrap(attemptAfter(failure, next))),
          );
        }),
      );

      const attemptAfter = Effect.fnUntraced(function* (failure: ModelFailure, failed: Candidate) {
        const { name } = failed.provider;
        details.add(providers.length > 1 ? `${name}: ${failure.detail}` : failure.detail);
        if (failure.reason !== "circuit_open") calls++;
        if (failure.reason === "context_length" && failed.halvings < maxHalvings) {
          failed.halvings++;
          failed.prompt = promptOf(failed.prompt.tokens / 2);
          failed.readyAt = 0;
        } else {
          const now = yield* Clock.currentTimeMillis;
          const pause = yield* Effect.option(failed.nextPause(now, failure));
          if (Option.isSome(pause)) failed.readyAt = now + Duration.toMillis(pause.value[1]);
          else candidates = candidates.filter((candidate) => candidate !== failed);
        }
        if (candidates.length === 0 || failure.reason === "content_filter") {
          return Stream.fail(new AnswerUnavailable({ reason: [...details].join("; ") }));
        }
        return Stream.concat(Stream.make<[AnswerPart]>({ _tag: "Restart" }), attempt);
      });

      return attempt;
    }),
  );
