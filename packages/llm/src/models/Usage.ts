/**
 * The last part of an answer.
 */
import type { AnswerPart, Usage } from "@parley/core";
import { Clock, Effect } from "effect";

/** The cost of an answer that began at `startedAt`; by default one call that took no tokens. */
export const usageSince = (
  startedAt: number,
  usage: Pick<Usage, "provider" | "model"> & Partial<Usage>,
): Effect.Effect<AnswerPart> =>
  Effect.map(Clock.currentTimeMillis, (now) => ({
    _tag: "Usage",
    usage: {
      promptTokens: 0,
      completionTokens: 0,
      attempts: 1,
      ...usage,
      latencyMillis: now - startedAt,
    },
  }));
