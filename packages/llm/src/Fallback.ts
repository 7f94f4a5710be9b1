/**
 * An answer from the first of several providers that can give one.
 */
import type { AnswerPart, AnswerUnavailable, StorageUnavailable } from "@parley/core";
import { Clock, Effect, Stream } from "effect";
import { type ModelFailure, unavailable } from "./Failure.ts";
import type { Prompt } from "./Prompt.ts";
import type { Provider } from "./Provider.ts";

/** A provider, and the prompt for a share of its model's window. */
export interface Candidate {
  readonly provider: Provider;
  readonly promptOf: (share: number) => Effect.Effect<Prompt, StorageUnavailable>;
}

/**
 * Asks one provider after the other until an answer begins. From then on nothing is taken back: an
 * answer that breaks off fails. What a model withholds, no other is asked for.
 */
export const answerFromFirst = (
  candidates: ReadonlyArray<Candidate>,
): Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const startedAt = yield* Clock.currentTimeMillis;
      let attempts = 0;
      const failures: Array<ModelFailure> = [];
      for (const { promptOf, provider } of candidates) {
        const begun = yield* provider
          .begin(promptOf, () => attempts++)
          .pipe(
            Effect.catchTag("ModelFailure", (failure) => {
              failures.push(failure);
              return Effect.succeed(null);
            }),
          );
        if (begun !== null) {
          return begun.parts.pipe(
            Stream.mapError((failure) => unavailable([failure])),
            Stream.mapEffect((part) =>
              Effect.map(Clock.currentTimeMillis, (now): AnswerPart =>
                part._tag === "Delta"
                  ? part
                  : {
                      _tag: "Usage",
                      usage: {
                        provider: begun.provider,
                        model: begun.model,
                        promptTokens: part.prompt,
                        completionTokens: part.completion,
                        attempts,
                        latencyMillis: now - startedAt,
                      },
                    },
              ),
            ),
          );
        }
        if (failures.at(-1)?.reason === "content_filter")
          return Stream.fail(unavailable(failures.slice(-1)));
      }
      return Stream.fail(unavailable(failures));
    }),
  );
