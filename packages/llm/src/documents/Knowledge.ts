/**
 * Documents to answer questions from, as a full-text index in memory.
 */
import { describeCause, type AnswerUnavailable, type Chatbot } from "@parley/core/ports";
import { Data, Effect, FileSystem, Path, type PlatformError } from "effect";
import { type Passage, passagesOf } from "./Passage.ts";
import { SearchIndex } from "./SearchIndex.ts";

/** An index of passages. */
export interface Knowledge {
  /** The paths of the documents with passages. */
  readonly documents: ReadonlySet<string>;
  /**
   * Returns up to `limit` passages with words of the question: first the best passage of each of the three best
   * documents, then the best others. The same documents and question always give the same passages in the same order.
   */
  readonly search: (question: string, limit: number) => ReadonlyArray<Passage>;
  readonly passages: ReadonlyArray<Passage>;
  /** The `sourceUrl` of chatbots without one; none by default. */
  readonly sourceUrl?: string;
}

/** Returns the template for the addresses of sources; `null` if there is none. */
export const templateOf = ({ settings }: Chatbot, knowledge: Knowledge | null): string | null =>
  settings.sourceUrl ?? knowledge?.sourceUrl ?? null;

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
const maxTotal = 50_000_000;
const maxPassages = 200_000;

/**
 * Reads every `*.md` and `*.txt` file below `folder`, and the files in `others` beside the folder, as Markdown, and
 * indexes them. Names that begin with a dot, `node_modules` and links to folders are ignored. A document is skipped with
 * a warning if it is larger than 5 MB, unreadable, not UTF-8, or behind a symbolic link that leads out of the folder; so
 * are documents beyond 50 MB or 200,000 passages.
 */
export const readKnowledge = (
  folder: string,
  others: ReadonlyArray<string> = [],
): Effect.Effect<Knowledge, KnowledgeUnreadable, FileSystem.FileSystem | Path.Path> =>
  Effect.gen(function* () {
    const fs = yield* FileSystem.FileSystem;
    const path = yield* Path.Path;
    const root = yield* fs.realPath(folder);
    // Fails if the root is a file, where the glob would simply find nothing.
    yield* fs.readDirectory(root);
    const names = yield* fs.glob("**/*", { root, exclude: ["**/node_modules"] });
    const passages: Array<Passage> = [];
    const leftOut: Array<string> = [];
    let total = 0;

    const readDocument = Effect.fnUntraced(
      function* (source: string, at: string, within: string) {
        // Only the real path is read, so that a link that changes in the meantime cannot lead out of the folder.
        const real = yield* fs.realPath(at);
        if (!real.startsWith(within)) {
          return yield* Effect.fail("its symbolic link points outside the folder");
        }
        const { size } = yield* fs.stat(real);
        if (size > maxBytes) return yield* Effect.fail("it is larger than 5 MB");
        if (total + Number(size) > maxTotal) return void leftOut.push(source);
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
        // A document beside the folder names it in its links.
        const inside = within === "" ? text.replaceAll(`](${path.basename(root)}/`, "](") : text;
        const more = passagesOf(source, inside);
        if (passages.length + more.length > maxPassages) return void leftOut.push(source);
        total += Number(size);
        for (const passage of more) passages.push(passage);
      },
      (read, source) =>
        Effect.catch(read, (error) => {
          const reason = typeof error === "string" ? error : error.reason._tag;
          return Effect.logWarning(`Skipped the document ${source}: ${reason}`);
        }),
    );
    const documents = names.filter((name) => /\.(md|txt)$/i.test(name)).sort();
    for (const name of documents) {
      yield* readDocument(name, path.join(root, name), path.join(root, path.sep));
    }
    for (const at of others) yield* readDocument(path.basename(at), at, "");
    if (leftOut.length > 0)
      yield* Effect.logWarning(
        `Left out ${leftOut.length} of the documents in ${folder}, from ${leftOut[0]} to ${leftOut.at(-1)}: at most 50 MB and 200,000 passages are read`,
      );
    return yield* makeKnowledge(passages);
  }).pipe(Effect.mapError((cause) => new KnowledgeUnreadable({ folder, cause })));

/** Builds an index of the given passages, and lets other work run meanwhile, as a large folder takes seconds. */
export const makeKnowledge = (passages: ReadonlyArray<Passage>): Effect.Effect<Knowledge> =>
  Effect.gen(function* () {
    const index = new SearchIndex();
    for (const [at, passage] of passages.entries()) {
      // About every ten milliseconds.
      if (at % 100 === 99) yield* Effect.yieldNow;
      index.add(passage);
    }
    const search = (question: string, limit: number): ReadonlyArray<Passage> => {
      const ranking = index.search(question);
      const best = new Map<string, Passage>();
      for (const { id } of ranking) {
        const passage = passages[id]!;
        if (!best.has(passage.source)) best.set(passage.source, passage);
        if (best.size === 3) break;
      }
      const others = ranking.slice(0, limit).map(({ id }) => passages[id]!);
      return [...new Set([...best.values(), ...others])].slice(0, limit);
    };
    const documents = new Set(passages.map(({ source }) => source));
    return { documents, search, passages };
  });
