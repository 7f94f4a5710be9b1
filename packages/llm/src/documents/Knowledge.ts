/**
 * Documents to answer questions from, as a full-text index in memory.
 */
import { describeCause, type AnswerUnavailable, type Chatbot } from "@parley/core/ports";
import { Data, Effect, FileSystem, Path, type PlatformError } from "effect";
import { type Passage, passagesOf } from "./Passage.ts";
import { verbsIn, isCommon, questionTerms, termOf, wordsOf } from "./Terms.ts";

/** A passage that a search found. */
export interface Match extends Passage {
  /** Whether the passage is likely to answer the question, rather than only touch on its subject. */
  readonly certain: boolean;
}

/** An index of passages. */
export interface Knowledge {
  /** The titles of the documents: their first headings, or else their names. */
  readonly topics: ReadonlyArray<string>;
  /** Up to three headings, preferably questions, that the documents are likely to answer when asked. */
  readonly questions: ReadonlyArray<string>;
  /**
   * Returns up to `limit` passages about the question, best first. The same documents and question always give the same
   * passages in the same order.
   */
  readonly search: (question: string, limit: number) => ReadonlyArray<Match>;
  readonly passages: ReadonlyArray<Passage>;
}

/** All chatbots' documents, a function that looks up a chatbot's documents for each question, or `null` for none. */
export type KnowledgeSource =
  | Knowledge
  | null
  | ((chatbot: Chatbot) => Effect.Effect<Knowledge | null, AnswerUnavailable>);

export const lookUpIn = (source: KnowledgeSource) =>
  typeof source === "function" ? source : () => Effect.succeed(source);

/** The documents folder is missing, is not a folder, or cannot be listed. */
export class KnowledgeUnreadable extends Data.TaggedError("KnowledgeUnreadable")<{
  readonly folder: string;
  readonly cause: PlatformError.PlatformError;
}> {
  override get message() {
    return `cannot read the documents in ${this.folder}: ${describeCause(this.cause)}`;
  }
}

const maxBytes = 5_000_000n;

/**
 * Reads every `*.md` and `*.txt` file below `folder`, and the files in `others`, as Markdown, and indexes them. Names
 * that begin with a dot, `node_modules` and links to folders are ignored. A document is skipped with a warning if it is
 * larger than 5 MB, unreadable, not UTF-8, or behind a symbolic link that leads out of the folder. Its passages in
 * `previous`, if any, are kept, because a link may dangle for a moment while documents are replaced.
 */
export const readKnowledge = (
  folder: string,
  others: ReadonlyArray<string> = [],
  previous: Knowledge | null = null,
): Effect.Effect<Knowledge, KnowledgeUnreadable, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem;
    const path = yield* Path.Path;
    const root = yield* fs.realPath(folder);
    // Fails if the root is a file, where the glob would simply find nothing.
    yield* fs.readDirectory(root);
    const names = yield* fs.glob("**/*", { root, exclude: ["**/node_modules"] });
    const passages: Array<Passage> = [];

    const readDocument = Effect.fnUntraced(
      function* (source: string, at: string, within: string) {
        // Only the real path is read, so that a link that changes in the meantime cannot lead out of the folder.
        const real = yield* fs.realPath(at);
        if (!real.startsWith(within)) {
          return yield* Effect.fail("its symbolic link points outside the folder");
        }
        if ((yield* fs.stat(real)).size > maxBytes)
          return yield* Effect.fail("it is larger than 5 MB");
        const bytes = yield* fs.readFile(real);
        const text = yield* Effect.try({
          try: () => {
            const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
            // UTF-16 can be valid UTF-8.
            if (text.includes("\0")) throw new TypeError();
            return text;
          },
          catch: () => "it is not UTF-8",
        });
        for (const passage of passagesOf(source, text)) passages.push(passage);
      },
      (read, source) =>
        Effect.catch(read, (error) => {
          const reason = typeof error === "string" ? error : error.reason._tag;
          const older = previous?.passages.filter((passage) => passage.source === source) ?? [];
          passages.push(...older);
          const outcome = older.length > 0 ? "Kept the previous version of" : "Skipped";
          return Effect.logWarning(`${outcome} the document ${source}: ${reason}`);
        }),
    );
    for (const name of names.filter((name) => /\.(md|txt)$/i.test(name))) {
      yield* readDocument(name, path.join(root, name), path.join(root, path.sep));
    }
    for (const at of others) yield* readDocument(path.basename(at), at, "");
    return yield* makeKnowledge(passages);
  }).pipe(Effect.mapError((cause) => new KnowledgeUnreadable({ folder, cause })));

/** The minimum share of a question that a passage must cover to be about it. */
const aboutShare = 0.3;
/** The minimum share of a question that a passage must cover to be likely to answer it. */
const certainShare = 0.85;
/** A longer question says more than its subject, so a passage need only cover `aboutShare` of this many terms. */
const maxTerms = 5;
/** The minimum likeness of a heading or synonym to the question for its passage to be likely to answer the question. */
const certainLikeness = 0.75;
/** The margin by which the best passage must outrank those below other headings to be likely to answer the question. */
const certainLead = 0.15;
/** The likeness at which a phrase counts as the question itself. If only the best passage has one, it needs no lead. */
const sameLikeness = 0.99;
/**
 * How much the three phrases of a passage that are most like the question add to the passage's rank. The phrases are
 * the last heading and its synonyms; many questions mix two of them.
 */
const phraseShares = [1, 0.3, 0.2];
/** The minimum likeness of a heading to a longer question that contains it. */
const containedLikeness = 0.9;
/** The share of its weight that a term keeps if it occurs only in a passage's text, not in its headings or synonyms. */
const inText = 0.5;

/** Builds an index of the given passages. */
export const makeKnowledge = (passages: ReadonlyArray<Passage>): Effect.Effect<Knowledge> =>
  Effect.gen(function* () {
    const topics = new Map<string, string>();
    /** The part of each term's weight that counts for a passage, keyed by term and then by passage. */
    const index = new Map<string, Map<number, number>>();
    const add = (id: number, words: string, part: number) => {
      for (const term of wordsOf(words).map(termOf)) {
        const parts = index.get(term) ?? new Map<number, number>();
        if (!parts.has(id)) index.set(term, parts.set(id, part));
      }
    };
    for (const [id, { headings, source, synonyms = [], text }] of passages.entries()) {
      // Without this, a large folder would block the event loop for seconds.
      yield* Effect.yieldNow;
      const title = source.replace(/\.[^./]*$/, "");
      if (!topics.has(source)) topics.set(source, headings[0] ?? title);
      add(id, [title, ...headings, ...synonyms].join("\n"), 1);
      add(id, text, headings.length === 0 ? 1 : inText);
    }

    /** The rarer a term, the higher its weight, until only a fiftieth of the passages contain it. */
    const toWeight = (count: number) => Math.log(2 + Math.min(50, passages.length / (count || 1)));
    const weigh = (term: string) => (isCommon(term) ? 0.3 : toWeight(index.get(term)?.size ?? 0));

    const search = (question: string, limit: number): ReadonlyArray<Match> => {
      const { about, words } = questionTerms(question, index);
      const verbs = verbsIn(words);
      const hits = about.map((term) => {
        const parts = new Map<number, number>();
        for (const [indexTerm, partsOfTerm] of index) {
          if (indexTerm !== term && !(term.length >= 4 && indexTerm.startsWith(term))) continue;
          for (const [id, part] of partsOfTerm) {
            parts.set(id, Math.max(part, parts.get(id) ?? 0));
          }
        }
        return { parts, weight: toWeight(parts.size) };
      });
      const totalWeight = hits.reduce((sum, { weight }) => sum + weight, 0);
      const cappedWeight = totalWeight * Math.min(1, maxTerms / hits.length);
      const matches = passages.flatMap((passage, id) => {
        const coverage = hits.reduce((sum, hit) => sum + (hit.parts.get(id) ?? 0) * hit.weight, 0);
        const share = coverage / cappedWeight;
        if (coverage === 0 || share < aboutShare) return [];
        const phrases = [passage.headings.at(-1) ?? "", ...(passage.synonyms ?? [])];
        const passageVerbs = verbsIn(new Set(wordsOf(phrases.join("\n")).map(termOf)));
        // A passage about stopping does not answer a question about starting.
        const hasOtherVerb = verbs.length > 0 && !verbs.some((verb) => passageVerbs.includes(verb));
        const penalty = hasOtherVerb ? (passageVerbs.length > 0 ? 0.5 : 0.25) : 0;
        const likenesses = phrases.map((phrase) => likeness(words, phrase, weigh));
        const certain =
          coverage >= certainShare * totalWeight &&
          !hasOtherVerb &&
          phrases.some((phrase, at) => {
            const isOpposite = isNegated(question) && !isNegated(phrase);
            return likenesses[at]! >= certainLikeness && !isOpposite;
          });
        likenesses.sort((a, b) => b - a);
        const maxLikeness = likenesses[0]!;
        const rank = phraseShares.reduce(
          (sum, part, at) => sum + part * (likenesses[at] ?? 0),
          share - penalty,
        );
        return [{ rank, maxLikeness, certain, passage }];
      });
      matches.sort((a, b) => b.rank - a.rank);
      const [best] = matches;
      if (best === undefined) return [];
      const { headings, source } = best.passage;
      const rival = matches.find(
        ({ passage }) => passage.source !== source || passage.headings.at(-1) !== headings.at(-1),
      );
      const leads =
        rival === undefined ||
        best.rank >= rival.rank + certainLead ||
        (best.maxLikeness >= sameLikeness && rival.maxLikeness < sameLikeness);
      return matches
        .slice(0, limit)
        .map(({ certain, passage }) => ({ ...passage, certain: certain && leads }));
    };

    return {
      topics: [...topics.values()],
      questions: questionsOf(passages, search),
      search,
      passages,
    };
  });

/** Whether the text contains an English or German negation: "which it answers" does not match "which it didn't answer". */
const isNegated = (text: string): boolean =>
  /\b(no|not|never|nobody|nothing|without|cannot|nicht|nichts|nie|keine?[nmrs]?|ohne)\b/i.test(
    text,
  ) || /\b(ca|do|does|did|is|are|was|were|wo|would|could|should|has|have)n['’]?t\b/i.test(text);

const questionsOf = (
  passages: ReadonlyArray<Passage>,
  search: Knowledge["search"],
): ReadonlyArray<string> => {
  const headings = new Set(passages.map(({ headings }) => headings.at(-1) ?? ""));
  const questions: Array<string> = [];
  // Only twenty, because searching for every heading in a large folder would block the event loop for seconds.
  const candidates = [...headings]
    .filter(({ length }) => length > 0 && length <= 80)
    .sort((a, b) => Number(b.endsWith("?")) - Number(a.endsWith("?")))
    .slice(0, 20);
  for (const heading of candidates) {
    const [best] = search(heading, 1);
    if (best?.certain && best.headings.at(-1) === heading) questions.push(heading);
    if (questions.length === 3) break;
  }
  return questions;
};

/**
 * Returns the likeness of a heading to a question, from 0 to 1: the weight of the terms that they share, relative to
 * all their terms. If punctuation divides the heading, only its most similar part counts. A heading with at least two
 * uncommon words is like every question that contains them all, however long the question is.
 */
const likeness = (
  question: ReadonlySet<string>,
  heading: string,
  weigh: (term: string) => number,
): number => {
  const sum = (terms: Iterable<string>) => [...terms].reduce((all, term) => all + weigh(term), 0);
  const size = sum(question);
  return Math.max(
    ...heading.split(/[\p{P}\p{S}]\s/u).map((part) => {
      const words = new Set(wordsOf(part).map(termOf));
      const common = [...words].filter((word) => question.has(word));
      const similarity = (2 * sum(common)) / (sum(words) + size);
      const subject = [...words].filter((word) => !isCommon(word));
      const isContained = subject.length >= 2 && subject.every((word) => question.has(word));
      return isContained ? Math.max(similarity, containedLikeness) : similarity;
    }),
  );
};
