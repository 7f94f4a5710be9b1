/**
 * What an operator sees of the language models.
 */
import { Metric } from "effect";
import type { FailureReason } from "./Failure.ts";

const failures = Metric.counter("parley_model_failures", {
  description: "Calls of language models that failed",
  incremental: true,
});

const answers = Metric.counter("parley_answers", {
  description: "Answers that language models completed",
  incremental: true,
});

export const countFailure = (provider: string, reason: FailureReason) =>
  Metric.update(Metric.withAttributes(failures, { provider, reason }), 1);

export const countAnswer = (provider: string) =>
  Metric.update(Metric.withAttributes(answers, { provider }), 1);
