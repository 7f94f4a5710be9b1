/**
 * Documents to answer questions from, as a full-text index in memory.
 */
import type { AnswerUnavailable, Chatbot } from "@parley/core";
import { Data, Effect, FileSystem, Path, type PlatformError } from "effect";
import { type Passage, passagesOfMarkdown, passagesOfText } from "./Passage.ts";
import { covers, questionTerms, termOf, wordsOf } from "./Terms.ts";

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
   * Up to `limit` passages for a question, best first; none unless the best is about the question. The same documents
   * and question always return the same passages in the same order.
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
 * Reads every `*.md` and `*.txt` file below `folder`, and the files in `others`, into an index. Symbolic links are
 * followed within the folder; each file and folder is read once. Names that begin with a dot and `node_modules` are
 * ignored. A document that is larger than 5 MB, unreadable or not UTF-8 text is skipped with a warning in the log.
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
/** The share of its weight that a term keeps if only the text of a passage has it, and no heading. */
const inText = 0.5;

/** How a passage has a term: the part of the term's weight that counts, and how often. */
interface Hit {
  part: number;
  count: number;
}

/** An index of the given passages. */
export const makeKnowledge = (passages: ReadonlyArray<Passage>): Effect.Effect<Knowledge> =>
  Effect.gen(function* () {
    const topics = new Map<string, string>();
    /** By term, then by passage. */
    const index = new Map<string, Map<number, Hit>>();
    const add = (id: number, words: string, part: number) => {
      for (const word of wordsOf(words)) {
        const term = termOf(word);
        const hits = index.get(term) ?? new Map<number, Hit>();
        const hit = hits.get(id);
        if (hit !== undefined) hit.count++;
        else index.set(term, hits.set(id, { part, count: 1 }));
      }
    };
    for (const [id, { headings, source, text }] of passages.entries()) {
      // A large folder would stop the server for seconds.
      yield* Effect.yieldNow;
      const title = source.replace(/\.[^./]*$/, "");
      if (!topics.has(source)) topics.set(source, headings[0] ?? title);
      add(id, [title, ...headings].join("\n"), 1);
      add(id, text, headings.length === 0 ? 1 : inText);
    }

    const search = (question: string, limit: number): ReadonlyArray<Match> => {
      const { about, isMisspelt, words } = questionTerms(question, index);
      const hits = about.map((asked) => {
        const found = new Map<number, Hit>();
        for (const [term, hitsOfTerm] of index) {
          if (!covers(asked, term)) continue;
          for (const [id, { count, part }] of hitsOfTerm) {
            const other = found.get(id) ?? { part: 0, count: 0 };
            found.set(id, { part: Math.max(part, other.part), count: count + other.count });
          }
        }
        // The rarer a term, the more it says about the question; a term of no document says most.
        return { found, weight: Math.log(2 + passages.length / (1 + found.size)) };
      });
      const whole = hits.reduce((sum, { weight }) => sum + weight, 0);
      const ids = new Set(hits.flatMap(({ found }) => [...found.keys()]));
      return [...ids]
        .map((id) => {
          const passage = passages[id]!;
          let [share, count] = [0, 0];
          for (const { found, weight } of hits) {
            share += ((found.get(id)?.part ?? 0) * weight) / whole;
            count += found.get(id)?.count ?? 0;
          }
          const alike = share < aboutShare ? 0 : likeness(words, passage.headings.at(-1) ?? "");
          const certain = !isMisspelt && share >= certainShare && alike >= certainLikeness;
          const density = count / passage.text.length;
          return { share, rank: share + alike, density, id, passage: { ...passage, certain } };
        })
        .filter(({ share }) => share >= aboutShare)
        .sort((a, b) => b.rank - a.rank || b.density - a.density || a.id - b.id)
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
