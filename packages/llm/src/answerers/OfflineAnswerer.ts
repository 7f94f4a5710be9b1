/**
 * Answers with passages of documents, without a language model.
 */
import { Answerer } from "@parley/core";
import { Effect, Layer, Stream } from "effect";
import { lookUpIn, type Knowledge, type KnowledgeSource } from "../documents/Knowledge.ts";
import { fold, wordsOf } from "../documents/Terms.ts";

/**
 * An `Answerer` that quotes the best passage for the question with its source. A passage that only touches the
 * question's subject begins with "The closest passage:". Without one, and to greetings, thanks and "help", it names the
 * topics of the documents. It reports no usage. It ignores the chat so far. The same question and documents always
 * return the same answer.
 *
 * @param knowledge the documents; `null` when there are none
 * @param hint a sentence for answers without a passage, such as how to set a language model
 */
export const layerOffline = (knowledge: KnowledgeSource, hint = ""): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, _earlier, question) =>
        Stream.fromEffect(
          Effect.map(lookUpIn(knowledge)(chatbot), (known) => ({
            _tag: "Delta",
            text: answerFrom(known, question, hint),
          })),
        ),
    }),
  );

/** Messages that are no questions, in English and German, each with the sentence that answers it. */
const smallTalk = {
  "Hello!":
    /^(hi|hello|hey|good (morning|day|evening)|hallo|moin|servus|guten (morgen|tag|abend))( (all|there|parley|zusammen))?$/,
  "You are welcome.": /^(thanks|thank you|thx|danke|vielen dank)( (a lot|very much|schon|sehr))?$/,
  "Ask a question, and the answer is a passage of the documents.":
    /^(help|help me|hilfe|what can (you do|i ask)|was kannst du)$/,
};

const answerFrom = (knowledge: Knowledge | null, question: string, hint: string): string => {
  if (knowledge === null || knowledge.topics.length === 0) {
    return `Neither a language model nor documents to answer from are configured. ${hint}`.trim();
  }
  const words = wordsOf(question).map(fold).join(" ");
  const reply = Object.entries(smallTalk).find(([, pattern]) => pattern.test(words))?.[0];
  const [best] = reply === undefined ? knowledge.search(question, 1) : [];
  if (best !== undefined) {
    const heading = best.headings.at(-1);
    const source = `Source: ${best.source}${heading === undefined ? "" : `, "${heading}"`}`;
    return `${best.certain ? "" : "The closest passage:\n\n"}${best.text}\n\n${source}`;
  }
  const more = knowledge.topics.length > maxTopics ? " · …" : "";
  const topics = `The topics of the documents: ${knowledge.topics.slice(0, maxTopics).join(" · ")}${more}`;
  if (reply !== undefined) return `${reply} ${topics}`;
  const nothing = "The documents hold nothing about that, and no language model is configured.";
  return `${nothing} ${topics}\n\n${hint}`.trim();
};

const maxTopics = 20;
