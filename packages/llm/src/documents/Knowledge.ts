/**
 * Documents to answer questions from, as a full-text index in memory.
 */
import type { AnswerUnavailable, Chatbot } from "@parley/core";
import { Data, Effect, FileSystem, Path, type PlatformError } from "effect";
import { type Passage, passagesOfMarkdown, passagesOfText } from "./Passage.ts";
import { covers, fold, questionTerms, termOf, wordsOf } from "./Terms.ts";

/** A passage that a search found. */
export interface Match extends Passage {
  /** Whether the passage is likely to answer the question, rather than to touch its subject. */
  readonly certain: boolean;
}

/** An index of passages. */
export interface Knowledge {
  /** The titles of the documents: their first headings, or else their names. */
  readonly topics: ReadonlyArray<string>;
  /**
   * Up to `limit` passages for a question, best first; none unless the best is about the question. The same documents and
   * question always return the same passages in the same order.
   */
  readonly search: (question: string, limit: number) => ReadonlyArray<Match>;
}

/** The documents of all chatbots, or a function that looks up those of one chatbot for each question; `null`: none. */
export type KnowledgeSource =
  | Knowledge
  | null
  | ((chatbot: Chatbot) => Effect.Effect<Knowledge | null, AnswerUnavailable>);

/** The look-up of a source. */
export const lookUpIn = (source: KnowledgeSource) =>
  typeof source === "function" ? source : () => Effect.succeed(source);

/** The folder of documents is missing, is not a folder, or cannot be listed. */
export class KnowledgeUnreadable extends Data.TaggedError("KnowledgeUnreadable")<{
  readonly folder: string;
  readonly cause: PlatformError.PlatformError;
}> {
  override get message() {
    return `cannot read the documents in ${this.folder}`;
  }
}

/** The size limit of a document, in bytes. */
const maxBytes = 5_000_000n;

/**
 * Reads every `*.md` and `*.txt` file below `folder`, and the files in `others`, into an index. Symbolic links are followed within the folder; each file
 * and folder is read once. Names that begin with a dot and `node_modules` are ignored. A document that is larger than
 * 5 MB, unreadable or not UTF-8 text is skipped with a warning in the log.
 */
export const readKnowledge = (
  folder: string,
  others: ReadonlyArray<string> = [],
): Effect.Effect<Knowledge, KnowledgeUnreadable, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem;
    const path = yield* Path.Path;
    const root = yield* fs.realPath(folder);
    const seen = new Set([root]);
    const passages: Array<Passage> = [];
    const skip = (source: string, reason: string) =>
      Effect.logWarning(`Skipped the document ${source}: ${reason}`);

    const readFolder = (
      at: string,
      prefix: string,
    ): Effect.Effect<void, PlatformError.PlatformError> =>
      Effect.gen(function* () {
        for (const name of (yield* fs.readDirectory(at)).sort()) {
          if (name.startsWith(".") || name === "node_modules") continue;
          const source = `${prefix}${name}`;
          yield* Effect.catch(visit(path.join(at, name), source), (error) =>
            skip(source, error.reason._tag),
          );
        }
      });

    const visit = Effect.fnUntraced(function* (at: string, source: string) {
      const { size, type } = yield* fs.stat(at);
      if (type !== "Directory" && !(type === "File" && /\.(md|txt)$/i.test(source))) return;
      // From here on only the real path is read: a link that changes meanwhile cannot lead out of the folder.
      const real = yield* fs.realPath(at);
      if (real !== root && !real.startsWith(root + path.sep)) {
        return yield* skip(source, "its symbolic link leads out of the folder");
      }
      if (seen.has(real)) return;
      seen.add(real);
      if (type === "Directory") return yield* readFolder(real, `${source}/`);
      if (size > maxBytes) return yield* skip(source, "it is over 5 MB");
      yield* readDocument(real, source);
    });

    const readDocument = Effect.fnUntraced(function* (at: string, source: string) {
      const text = decodeText(yield* fs.readFile(at));
      if (text === null) return yield* skip(source, "it is no UTF-8 text");
      const split = /\.md$/i.test(source) ? passagesOfMarkdown : passagesOfText;
      for (const passage of split(source, text)) passages.push(passage);
    });

    yield* readFolder(root, "");
    for (const at of others) {
      const source = path.basename(at);
      yield* Effect.catch(readDocument(at, source), ({ reason }) => skip(source, reason._tag));
    }
    return yield* makeKnowledge(passages);
  }).pipe(Effect.mapError((cause) => new KnowledgeUnreadable({ folder, cause })));

const decodeText = (bytes: Uint8Array): string | null => {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
};

/** The share of a question that a passage covers at least if it is about it, and if it is likely to answer it. */
const aboutShare = 0.4;
const certainShare = 0.85;
/** How like the question a heading is at least if its passage is likely to answer it. */
const certainLikeness = 0.4;
/** The part of its weight that a term has which is in the text of a passage, and not in its headings. */
const inText = 0.5;

/** An index of the given passages. */
export const makeKnowledge = (passages: ReadonlyArray<Passage>): Effect.Effect<Knowledge> =>
  Effect.gen(function* () {
    const { default: MiniSearch } = yield* Effect.promise(() => import("minisearch"));
    const vocabulary = new Set<string>();
    const index = new MiniSearch({
      fields: ["title", "heading", "text"],
      tokenize: wordsOf,
      processTerm: (word) => {
        const term = termOf(word);
        vocabulary.add(fold(word)).add(term);
        return term;
      },
    });
    const topics = new Map<string, string>();
    for (const [id, { headings, source, text }] of passages.entries()) {
      // One passage takes about a millisecond; a large folder would stop the server for seconds.
      yield* Effect.yieldNow;
      const title = source.replace(/\.[^./]*$/, "");
      if (!topics.has(source)) topics.set(source, headings[0] ?? title);
      index.add({ id, title, heading: headings.join("\n"), text });
    }

    const search = (question: string, limit: number): ReadonlyArray<Match> => {
      const { about, isMisspelt, words } = questionTerms(question, vocabulary);
      if (about.length === 0) return [];
      const results = index.search(about.join(" "), {
        tokenize: (terms) => terms.split(" "),
        processTerm: (term) => term,
        boost: { title: 1.5, heading: 3 },
        prefix: (term) => term.length >= 4,
      });
      /** How much of each term a passage has. */
      const matches = results.map(({ id, match, score }) => {
        const passage = passages[id as number]!;
        const parts = Object.entries(match).map(([term, fields]) => {
          const isWhole = passage.headings.length === 0 || fields.some((field) => field !== "text");
          return { term, part: isWhole ? 1 : inText };
        });
        const covered = about.map((asked) =>
          Math.max(0, ...parts.map(({ part, term }) => (covers(asked, term) ? part : 0))),
        );
        return { passage, id: id as number, score, covered };
      });
      // The rarer a term, the more it says about the question; a term of no document says most.
      const weights = about.map((_, at) => {
        const found = matches.filter(({ covered }) => covered[at]! > 0).length;
        return Math.log(2 + passages.length / (1 + found));
      });
      const sum = (numbers: ReadonlyArray<number>) => numbers.reduce((a, b) => a + b, 0);
      return matches
        .map(({ covered, passage, ...match }) => {
          const share = sum(covered.map((part, at) => part * weights[at]!)) / sum(weights);
          const alike = share < aboutShare ? 0 : likeness(words, passage.headings.at(-1) ?? "");
          const certain = !isMisspelt && share >= certainShare && alike >= certainLikeness;
          return { ...match, share, rank: share + alike, passage: { ...passage, certain } };
        })
        .filter(({ share }) => share >= aboutShare)
        .sort((a, b) => b.rank - a.rank || b.score - a.score || a.id - b.id)
        .slice(0, limit)
        .map(({ passage }) => passage);
    };

    return { topics: [...topics.values()], search };
  });

/** How like the words of a question a heading is, from 0 to 1, or the part of it between two marks that is most so. */
const likeness = (question: ReadonlySet<string>, heading: string): number =>
  Math.max(
    ...heading.split(/[\p{P}\p{S}]\s/u).map((part) => {
      const words = new Set(wordsOf(part).map(termOf));
      const common = [...words].filter((word) => question.has(word));
      return (2 * common.length) / (words.size + question.size);
    }),
  );
