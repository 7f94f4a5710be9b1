/**
 * Answers questions with passages from documents, without a language model.
 */
import { Answerer, AskedModel, type Chatbot } from "@parley/core/ports";
import { Effect, Layer, Stream } from "effect";
import {
  type Knowledge,
  type KnowledgeSource,
  lookUpIn,
  templateOf,
} from "../documents/Knowledge.ts";
import { firstSentences } from "../documents/Passage.ts";
import { sourceOf, sourcesOf, textOf, toLink } from "../documents/Source.ts";

/**
 * Provides an `Answerer` that quotes up to three passages with words of the question, each with a link to its source:
 * the best as a whole, the others by their first sentences. If there is none, it answers with the chatbot's
 * `notFoundMessage`, and the entry's metadata is `{ found: false }`. The answerer reports no usage and ignores the chat
 * so far. For a given chatbot, the same question and documents always give the same answer.
 *
 * @param knowledge the documents; `null` if there are none
 */
export const layerOffline = (knowledge: KnowledgeSource): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, _earlier, question) =>
        Stream.unwrap(
          Effect.gen(function* () {
            const documents = yield* lookUpIn(knowledge)(chatbot);
            (yield* AskedModel).tokens = 0;
            const { metadata, text } = answerFrom(chatbot, documents, question);
            return Stream.make(
              { _tag: "Delta", text } as const,
              { _tag: "Metadata", metadata } as const,
            );
          }),
        ),
    }),
  );

/** The maximum length of the text quoted from another passage, in characters: about three lines. */
const maxShortLength = 320;

const answerFrom = (chatbot: Chatbot, knowledge: Knowledge | null, question: string) => {
  const passages = knowledge?.search(question, 3) ?? [];
  if (knowledge === null || passages.length === 0)
    return { text: chatbot.settings.notFoundMessage, metadata: { found: false } };
  const template = templateOf(chatbot, knowledge);
  const quotations = passages.map((passage, at) => {
    const text = textOf(passage, template, knowledge.documents);
    const quotation = at === 0 ? text : firstSentences(text, maxShortLength);
    return [quotation, toLink(sourceOf(passage, template))].filter(Boolean).join("\n\n");
  });
  return { text: quotations.join("\n\n---\n\n"), metadata: sourcesOf(passages, template) };
};
