/**
 * Answers questions with passages from documents, without a language model.
 */
import { Answerer, AskedModel, type Chatbot } from "@parley/core/ports";
import { Effect, Layer, Stream } from "effect";
import { lookUpIn, type Knowledge, type KnowledgeSource } from "../documents/Knowledge.ts";
import { firstSentences, type Passage } from "../documents/Passage.ts";
import { fold, wordsOf } from "../documents/Terms.ts";

/**
 * Provides an `Answerer` that quotes the best passage for the question, with a link to its source. If the passage only
 * touches on the question's subject, the answer begins by expressing doubt and ends with the first sentences of up to
 * two other passages. If no passage is about the question, or if the question is small talk, the answer lists up to
 * three questions that the documents answer, or else up to ten of their topics. The answerer reports no usage and
 * ignores the chat so far. For a given chatbot, the same question and documents always give the same answer.
 *
 * @param knowledge the documents; `null` if there are none
 * @param hint a closing sentence if there are no documents, for example on how to configure a language model
 */
export const layerOffline = (knowledge: KnowledgeSource, hint = ""): Layer.Layer<Answerer> =>
  Layer.succeed(
    Answerer,
    Answerer.of({
      answer: (chatbot, _earlier, question) =>
        Stream.fromEffect(
          Effect.gen(function* () {
            const documents = yield* lookUpIn(knowledge)(chatbot);
            (yield* AskedModel).tokens = 0;
            return { _tag: "Delta", text: answerFrom(chatbot, documents, question, hint) } as const;
          }),
        ),
    }),
  );

const unsure = "I am not sure this answers your question:";

/** The maximum length of the text quoted from another passage, in characters: about three lines. */
const maxShortLength = 320;

/** Returns the replies to small talk, each with a pattern for the English and German messages that it answers. */
const smallTalk = ({ description, name }: Chatbot): Record<string, RegExp> => ({
  "Hello!":
    /^(hi|hello|hey|good (morning|day|evening)|hallo|moin|servus|guten (morgen|tag|abend))( (all|there|parley|zusammen))?$/,
  "You are welcome.":
    /^(thanks|thank you|thx|danke|vielen dank)( (a lot|very much|schon|sehr))?( (that|it|das) (helped|hat geholfen))?$/,
  "Goodbye!": /^((good )?bye|goodbye|see you|tschuss|ciao|auf wiedersehen)$/,
  [`I am ${name}. ${description || "I answer questions from documents."}`]:
    /^(help|help me|hilfe|what (can you do|can i ask|are you|is this)|who are you|(was kannst|wer bist) du|was kann ich( hier)?( eigentlich)?( alles)? fragen)$/,
});

const answerFrom = (
  chatbot: Chatbot,
  knowledge: Knowledge | null,
  question: string,
  hint: string,
): string => {
  if (knowledge === null || knowledge.topics.length === 0) {
    return `No language model is configured, and there are no documents. ${hint}`.trim();
  }
  const words = wordsOf(question).map(fold).join(" ");
  const talk = Object.entries(smallTalk(chatbot));
  const reply = talk.find(([, pattern]) => pattern.test(words))?.[0];
  const [best, ...others] = reply === undefined ? knowledge.search(question, 5) : [];
  if (best?.certain) return quote(best);
  if (best !== undefined) return `${unsure}\n\n${quote(best)}${listOthers(best, others)}`;
  const [first, items] =
    knowledge.questions.length > 0
      ? ["You can ask, for example:", knowledge.questions]
      : ["The documents are about:", knowledge.topics.slice(0, 10)];
  const list = items.map((item) => `- ${item}`).join("\n");
  return `${reply ?? "The documents do not cover that."} ${first}\n\n${list}`;
};

/** Returns the passage, followed by a link to its source. */
const quote = (passage: Passage): string => {
  const { headings, source, text } = passage;
  const name = [source, ...headings.slice(-1)].join(" › ");
  return `${toText(text, source)}\n\n---\n\nSource: ${toLink(name, passage)}`;
};

/** Lists up to two passages below other headings, each as a link and the passage's first sentences. */
const listOthers = (best: Passage, others: ReadonlyArray<Passage>): string => {
  const byAddress = new Map(others.map((passage) => [toAddress(passage), passage]));
  byAddress.delete(toAddress(best));
  const items = [...byAddress.values()].slice(0, 2).map((passage) => {
    const { headings, source, text } = passage;
    const sentences = firstSentences(text, maxShortLength);
    return `- ${toLink(headings.at(-1) ?? source, passage)} ${toText(sentences, source)}`.trimEnd();
  });
  const introduction =
    items.length === 1
      ? "Perhaps this answers your question"
      : "Perhaps one of these answers your question";
  return items.length === 0 ? "" : `\n\n${introduction}:\n\n${items.join("\n")}`;
};

/** Returns the text with its relative links rewritten to be relative to the documents folder. */
const toText = (text: string, source: string): string => {
  const folder = new URL(source, "file:///documents/");
  return text.replace(/\]\((?![a-z]+:|\/)([^)\s]+)/gi, (_: string, href: string) => {
    const path = new URL(href, folder).href;
    return `](${path.startsWith("file:///documents/") ? path.slice(18) : href}`;
  });
};

const toLink = (label: string, passage: Passage): string =>
  `[${label.replace(/[\\[\]]/g, "\\$&")}](${toAddress(passage)})`;

const toAddress = ({ headings, source }: Passage): string => {
  const heading = headings.at(-1);
  return `${encodeURI(source)}${heading === undefined ? "" : `#${toAnchor(heading)}`}`;
};

const toAnchor = (heading: string): string =>
  encodeURI(
    heading
      .toLowerCase()
      .replace(/[^\p{L}\p{N}\s_-]/gu, "")
      .replaceAll(" ", "-"),
  );
