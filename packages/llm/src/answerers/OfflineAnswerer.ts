/**
 * Answers without a language model: with the passage of the documents that fits the question best.
 */
import { Answerer, type AnswerPart } from "@parley/core";
import { Clock, Effect, Layer, Stream } from "effect";
import {
  isAbout,
  knowledgeFor,
  type Knowledge,
  type KnowledgeSource,
} from "../documents/Knowledge.ts";
import { usageSince } from "../models/Usage.ts";

/**
 * An `Answerer` that quotes. It answers with one passage and where it is from, or says that the
 * documents hold nothing about the question; it never writes a word of its own beyond that, and
 * does not look at the chat so far. The same question always gets the same answer.
 *
 * @param knowledge `null` when there are no documents at all
 */
export const layerOffline = (knowledge: KnowledgeSource): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, _earlier, question) =>
        Stream.fromIterableEffect(
          Effect.gen(function* () {
            const startedAt = yield* Clock.currentTimeMillis;
            const text = answerFrom(yield* knowledgeFor(knowledge, chatbot), question);
            const delta: AnswerPart = { _tag: "Delta", text };
            const usage = { provider: "offline", model: "minisearch" };
            return [delta, yield* usageSince(startedAt, usage)];
          }),
        ),
    }),
  );

const answerFrom = (knowledge: Knowledge | null, question: string): string => {
  if (knowledge === null || knowledge.passages === 0) {
    return "Neither a language model nor documents to answer from are configured.";
  }
  const [best] = knowledge.search(question, 1);
  if (best === undefined || !isAbout(best)) {
    return "The documents hold nothing about that, and no language model is configured.";
  }
  const { text, source, headings } = best.passage;
  const heading = headings.at(-1);
  return `${text}\n\nSource: ${source}${heading === undefined ? "" : `, "${heading}"`}`;
};
