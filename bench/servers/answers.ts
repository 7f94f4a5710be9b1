/**
 * The answers that the compared servers give. Unless a language model answers, all servers call the same function, so
 * the benchmark measures the work around an answer.
 */
import { setTimeout as sleep } from "node:timers/promises";

/** The question that is answered at once, in one piece. */
export const instantQuestion = "What does the benchmark ask again and again?";
export const instantAnswer =
  "The benchmark asks one question again and again, and this is its answer.";

/** A question that Parley's own documents answer. */
export const documentsQuestion = "How do I back up the database?";

/** The question that is answered in pieces, a few milliseconds apart. */
export const pacedQuestion = "What does the benchmark say piece by piece?";
export const pacedPieces = 200;
export const pacedMillis = 5;

export async function* answer(question: string): AsyncGenerator<string> {
  if (question !== pacedQuestion) return yield instantAnswer;
  for (let n = 1; n <= pacedPieces; n++) {
    await sleep(pacedMillis);
    yield `piece ${n} `;
  }
}
