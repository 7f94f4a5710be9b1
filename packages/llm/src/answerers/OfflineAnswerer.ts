/**
 * Answers with passages of documents, without a language model.
 */
import { Answerer, type AnswerPart } from "@parley/core";
import { Duration, Effect, Layer, Stream } from "effect";
import { knowledgeFor, type Knowledge, type KnowledgeSource } from "../documents/Knowledge.ts";

/**
 * An `Answerer` that quotes the best passage for the question with its source, or says that the documents hold nothing
 * about it. It ignores the chat so far. The same question and documents always return the same answer.
 *
 * @param knowledge the documents; `null` when there are none
 */
export const layerOffline = (knowledge: KnowledgeSource): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, _earlier, question) =>
        Stream.fromIterableEffect(
          knowledgeFor(knowledge, chatbot).pipe(
            Effect.map((known) => answerFrom(known, question)),
            Effect.timed,
            Effect.map(([duration, text]): ReadonlyArray<AnswerPart> => {
              const tokens = { promptTokens: 0, completionTokens: 0 };
              const usage = { provider: "offline", model: "minisearch", attempts: 1, ...tokens };
              const latencyMillis = Math.round(Duration.toMillis(duration));
              return [
                { _tag: "Delta", text },
                { _tag: "Usage", usage: { ...usage, latencyMillis } },
              ];
            }),
          ),
        ),
    }),
  );

const answerFrom = (knowledge: Knowledge | null, question: string): string => {
  if (knowledge === null) {
    return "Neither a language model nor documents to answer from are configured.";
  }
  const [best] = knowledge.search(question, 1);
  if (best === undefined) {
    return "The documents hold nothing about that, and no language model is configured.";
  }
  const heading = best.headings.at(-1);
  return `${best.text}\n\nSource: ${best.source}${heading === undefined ? "" : `, "${heading}"`}`;
};
