/**
 * An answer from the first of several providers that can give one.
 */
import type { AnswerPart, AnswerUnavailable, StorageUnavailable } from "@parley/core";
import { Clock, Effect, Stream } from "effect";
import { askedToWait, type ModelFailure, unavailable } from "./Failure.ts";
import type { Prompt } from "./Prompt.ts";
import type { Provider } from "./Provider.ts";

/** A provider, and the prompt for a share of its model's window. */
export interface Candidate {
  readonly provider: Provider;
  readonly promptOf: (share: number) => Effect.Effect<Prompt, StorageUnavailable>;
}

/** What the tries to answer one question have in common. */
export interface Tries {
  /** When the first one began. */
  startedAt: number | null;
  calls: number;
  /** When those may be called again that told this question to wait. */
  readonly notBefore: Map<Provider, number>;
}

export const makeTries = (): Tries => ({ startedAt: null, calls: 0, notBefore: new Map() });

/**
 * Asks one provider after the other until an answer begins; last come those that asked anybody to wait.
 * From then on nothing is taken back: an answer that breaks off fails. What a model withholds, no
 * other is asked for.
 */
export const answerFromFirst = (
  candidates: ReadonlyArray<Candidate>,
  tries: Tries,
): Stream.Stream<AnswerPart, AnswerUnavailable | StorageUnavailable> =>
  Stream.unwrap(
    Effect.gen(function* () {
      const startedAt = (tries.startedAt ??= yield* Clock.currentTimeMillis);
      const failures: Array<ModelFailure> = [];
      const inOrder = yield* Effect.forEach(candidates, (candidate) =>
        Effect.map(candidate.provider.asksToWait, (wait) => ({ ...candidate, wait })),
      );
      for (const { promptOf, provider } of inOrder.toSorted((a, b) => a.wait - b.wait)) {
        const wait = (tries.notBefore.get(provider) ?? 0) - (yield* Clock.currentTimeMillis);
        if (wait > 0) {
          failures.push(askedToWait(provider.name, wait));
          continue;
        }
        const begun = yield* provider
          .begin(promptOf, () => tries.calls++)
          .pipe(
            Effect.catchTag("ModelFailure", (failure) =>
              Effect.map(Clock.currentTimeMillis, (now) => {
                failures.push(failure);
                tries.notBefore.set(provider, now + (failure.retryAfterMillis ?? 0));
                return null;
              }),
            ),
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
                        attempts: tries.calls,
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
