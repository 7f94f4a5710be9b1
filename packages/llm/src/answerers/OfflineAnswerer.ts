/**
 * Answers with passages of documents, without a language model.
 */
import { Answerer, type AnswerPart } from "@parley/core";
import { Duration, Effect, Layer, Stream } from "effect";
import { lookUpIn, type Knowledge, type KnowledgeSource } from "../documents/Knowledge.ts";
import { fold, wordsOf } from "../documents/Terms.ts";

/**
 * An `Answerer` that quotes the best passage for the question with its source. A passage that only touches the question's
 * subject begins with "The closest passage:". Without one, and to greetings, thanks and "help", it names the topics of
 * the documents. It ignores the chat so far. The same question and documents always return the same answer.
 *
 * @param knowledge the documents; `null` when there are none
 * @param hint a sentence for answers without a passage, such as how to set a language model
 */
export const layerOffline = (knowledge: KnowledgeSource, hint = ""): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, _earlier, question) =>
        Stream.fromIterableEffect(
          lookUpIn(knowledge)(chatbot).pipe(
            Effect.map((known) => answerFrom(known, question, hint)),
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

/** Messages that are no questions, in English and German, and the sentence that answers them. */
const smallTalk: ReadonlyArray<readonly [RegExp, string]> = [
  [
    /^(hi|hello|hey|good (morning|day|evening)|hallo|moin|servus|guten (morgen|tag|abend))\b/,
    "Hello!",
  ],
  [/^(thanks|thank you|thx|danke|vielen dank)\b/, "You are welcome."],
  [
    /^(help|hilfe|what can (you do|i ask)|was kannst du)\b/,
    "Ask a question, and the answer is a passage of the documents.",
  ],
];

const answerFrom = (knowledge: Knowledge | null, question: string, hint: string): string => {
  const say = (...sentences: ReadonlyArray<string>) => sentences.filter((s) => s !== "").join(" ");
  if (knowledge === null || knowledge.topics.length === 0) {
    return say("Neither a language model nor documents to answer from are configured.", hint);
  }
  const names = knowledge.topics.slice(0, 20).join(" · ");
  const topics = `The topics of the documents: ${names}${knowledge.topics.length > 20 ? " · …" : "."}`;
  const words = wordsOf(question).map(fold).join(" ");
  const talk = words.length > 40 ? undefined : smallTalk.find(([pattern]) => pattern.test(words));
  const [best] = knowledge.search(question, 1);
  if (best === undefined) {
    return talk === undefined
      ? say(
          "The documents hold nothing about that, and no language model is configured.",
          topics,
          hint,
        )
      : say(talk[1], topics);
  }
  const heading = best.headings.at(-1);
  const source = `Source: ${best.source}${heading === undefined ? "" : `, "${heading}"`}`;
  return `${best.certain ? "" : "The closest passage:\n\n"}${best.text}\n\n${source}`;
};
