/**
 * The documents that questions can be answered from, searched by their words.
 */
import type { AnswerUnavailable, Chatbot } from "@parley/core";
import { Data, Effect, FileSystem, Path, type PlatformError } from "effect";
import { type Passage, passagesOfMarkdown, passagesOfText } from "./Passage.ts";
import { covers, documentTerms, questionTerms, wordsOf } from "./Terms.ts";

/** A passage that a search found. */
export interface Match {
  readonly passage: Passage;
  /** Higher is better; comparable within one search only. */
  readonly score: number;
  /**
   * The share, 0 to 1, of what the question is about that this passage holds, word for word or as
   * the beginning of a longer word. Similar words rank a passage but do not count here.
   */
  readonly share: number;
  /** The same share for all documents together: below 1 when the question names something unheard of. */
  readonly known: number;
}

/**
 * Whether a passage is about the question: it holds at least half of what the question is about, and
 * more than half when that names something that no document does: "the capital of France" is not
 * answered with a passage on capital letters.
 */
export const isAbout = ({ share, known }: Match): boolean =>
  share > 0.5 || (share === 0.5 && known === 1);

export interface Knowledge {
  readonly documents: number;
  readonly passages: number;
  /**
   * The best passages for a question: the largest share first, then the highest score. The same
   * documents and question always give the same passages in the same order.
   */
  readonly search: (question: string, limit: number) => ReadonlyArray<Match>;
}

/** The documents that a chatbot answers from: everybody's, or looked up at each question. */
export type KnowledgeSource =
  | Knowledge
  | null
  | ((chatbot: Chatbot) => Effect.Effect<Knowledge | null, AnswerUnavailable>);

export const knowledgeFor = (
  source: KnowledgeSource,
  chatbot: Chatbot,
): Effect.Effect<Knowledge | null, AnswerUnavailable> =>
  typeof source === "function" ? source(chatbot) : Effect.succeed(source);

/** The folder of documents is missing, is no folder, or cannot be listed. */
export class KnowledgeUnreadable extends Data.TaggedError("KnowledgeUnreadable")<{
  readonly folder: string;
  readonly cause?: PlatformError.PlatformError;
}> {
  override get message() {
    return `cannot read the documents in ${this.folder}`;
  }
}

/** The size, in bytes, above which a document is skipped. */
const largest = 5_000_000n;

/**
 * Reads every `*.md` and `*.txt` below `folder` into an index in memory. Symbolic links are followed as far as they do
 * not lead out of the folder; each file and folder is read once. Names that begin with a dot and `node_modules` are left
 * out. A document that is over 5 MB, unreadable or no UTF-8 text is skipped with a logged warning.
 */
export const readKnowledge = (
  folder: string,
): Effect.Effect<Knowledge, KnowledgeUnreadable, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem;
    const path = yield* Path.Path;
    const passages: Array<Passage> = [];
    let documents = 0;
    const skipped = (source: string, why: string) =>
      Effect.logWarning(`Skipped the document ${source}: ${why}`);
    const readFolder = (
      at: string,
      under: string,
    ): Effect.Effect<void, PlatformError.PlatformError> =>
      Effect.gen(function* () {
        for (const name of (yield* fs.readDirectory(at)).sort()) {
          if (name.startsWith(".") || name === "node_modules") continue;
          const source = `${under}${name}`;
          yield* Effect.catch(visit(path.join(at, name), source), (error) =>
            skipped(source, error.reason._tag),
          );
        }
      });

    const root = yield* fs.realPath(folder);
    const seen = new Set([root]);
    const visit = Effect.fnUntraced(function* (at: string, source: string) {
      const { size, type } = yield* fs.stat(at);
      if (type !== "Directory" && !(type === "File" && /\.(md|txt)$/i.test(source))) return;
      // Reading the real path makes sure that a link which changes meanwhile does not lead out either.
      const real = yield* fs.realPath(at);
      if (real !== root && !real.startsWith(root + path.sep)) {
        return yield* skipped(source, "its symbolic link leads out of the folder");
      }
      if (seen.has(real)) return;
      seen.add(real);
      if (type === "Directory") return yield* readFolder(real, `${source}/`);
      if (size > largest) return yield* skipped(source, "it is over 5 MB");
      const text = decode(yield* fs.readFile(real));
      if (text === null) return yield* skipped(source, "it is no UTF-8 text");
      documents++;
      const split = /\.md$/i.test(source) ? passagesOfMarkdown : passagesOfText;
      for (const passage of split(source, text)) passages.push(passage);
      // Folders are read while others are answered.
      yield* Effect.yieldNow;
    });

    yield* readFolder(root, "");
    return yield* makeKnowledge(passages, documents);
  }).pipe(Effect.mapError((cause) => new KnowledgeUnreadable({ folder, cause })));

const decode = (bytes: Uint8Array): string | null => {
  try {
    const text = new TextDecoder("utf-8", { fatal: true }).decode(bytes);
    return text.includes("\0") ? null : text;
  } catch {
    return null;
  }
};

/** The index over passages that are already there, `documents` telling how many they come from. */
export const makeKnowledge = (
  passages: ReadonlyArray<Passage>,
  documents: number = new Set(passages.map(({ source }) => source)).size,
): Effect.Effect<Knowledge> =>
  Effect.gen(function* () {
    const { default: MiniSearch } = yield* Effect.promise(() => import("minisearch"));
    const index = new MiniSearch({
      fields: ["title", "heading", "text"],
      tokenize: wordsOf,
      processTerm: documentTerms,
    });
    for (const [id, { headings, source, text }] of passages.entries()) {
      // Each takes about a millisecond, and all may take seconds.
      yield* Effect.yieldNow;
      index.add({
        id,
        title: source.replace(/\.[^./]*$/, ""),
        heading: headings.join("\n"),
        text,
      });
    }

    const search = (question: string, limit: number): ReadonlyArray<Match> => {
      const { all, about } = questionTerms(question);
      if (all.length === 0) return [];
      const results = index.search(all.join(" "), {
        tokenize: (terms) => terms.split(" "),
        processTerm: (term) => term,
        boost: { title: 1.5, heading: 3 },
        prefix: (term) => term.length >= 4,
        fuzzy: (term) => (term.length >= 5 ? 0.2 : false),
      });
      const held = new Set<string>();
      const matches = results.map(({ id, score, terms }) => {
        const matched = about.filter((term) => terms.some((found) => covers(term, found)));
        for (const term of matched) held.add(term);
        return { id: id as number, score, share: matched.length / about.length };
      });
      return matches
        .sort((a, b) => b.share - a.share || b.score - a.score || a.id - b.id)
        .slice(0, limit)
        .map(({ id, score, share }) => ({
          passage: passages[id]!,
          score,
          share,
          known: held.size / about.length,
        }));
    };

    return { documents, passages: passages.length, search };
  });
