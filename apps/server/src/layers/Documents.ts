/**
 * The documents that chatbots answer from.
 */
import { AnswerUnavailable } from "@parley/core/ports";
import { type Knowledge, type KnowledgeUnreadable, readKnowledge } from "@parley/llm";
import { Cache, Context, Duration, Effect, Exit, Layer, Path, Stream } from "effect";
import { on } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { pluralize } from "../cli/Output.ts";
import { Settings } from "../Settings.ts";

/**
 * Finds a file or folder of this project's documentation, next to the bundle or in the checkout. By default, chatbots
 * answer from that documentation if neither PARLEY_KNOWLEDGE_DIR nor a language model is set.
 */
const locate = (path: string) =>
  [path, `../../../../${path}`]
    .map((location) => fileURLToPath(new URL(location, import.meta.url)))
    .find(existsSync)!;
export const ownDocuments = locate("docs");
export const ownReadme = locate("README.md");

const read = Effect.fnUntraced(function* (folder: string, pages: boolean) {
  const others = folder === ownDocuments ? [ownReadme] : [];
  const knowledge = yield* readKnowledge(folder, others);
  const { documents, passages } = knowledge;
  if (folder === ownDocuments) {
    // Links lead to the guide.
    return pages ? { ...knowledge, sourceUrl: "/docs/{path}#{heading}" } : knowledge;
  }
  yield* passages.length > 0
    ? Effect.logInfo(
        `Read ${pluralize(documents.size, "document")} with ${pluralize(passages.length, "passage")} from ${folder}`,
      )
    : Effect.logWarning(
        `There are no documents in ${folder}: their names must end with .md or .txt`,
      );
  return knowledge;
});

export class Documents extends Context.Service<
  Documents,
  {
    /**
     * Returns the documents in the PARLEY_KNOWLEDGE_DIR subfolder of this name, read on first use. For `null`, returns
     * the default documents, or `null` if there are none. Fails if the folder cannot be read.
     */
    readonly byName: (name: string | null) => Effect.Effect<Knowledge | null, AnswerUnavailable>;
    /** This project's documentation, read on first use. */
    readonly own: Effect.Effect<Knowledge, KnowledgeUnreadable>;
  }
>()("@parley/server/Documents") {}

/** Emits on each SIGHUP. Signals that arrive while an element is being handled are merged into one. */
export const reloadOnSighup: Stream.Stream<unknown> = Stream.suspend(() =>
  Stream.fromAsyncIterable(on(process, "SIGHUP"), String),
).pipe(Stream.orDie, Stream.buffer({ capacity: 1, strategy: "sliding" }));

/**
 * Reads the default documents when the layer is built, and fails if they cannot be read.
 *
 * @param reload each element reloads every folder read so far; a folder that cannot be read keeps its old documents
 */
export const layerDocuments = (reload: Stream.Stream<unknown>) =>
  Layer.effect(
    Documents,
    Effect.gen(function* () {
      const { knowledgeDir, llms, pages } = yield* Settings;
      const path = yield* Path.Path;
      const folders = yield* Cache.makeWith((folder: string) => read(folder, pages), {
        capacity: 10_000,
        timeToLive: (exit) => (Exit.isSuccess(exit) ? Duration.infinity : Duration.zero),
      });
      const readAgain = (folder: string) =>
        read(folder, pages).pipe(
          Effect.flatMap((knowledge) => Cache.set(folders, folder, knowledge)),
          Effect.andThen(Effect.logInfo(`Reloaded the documents in ${folder}`)),
          Effect.catchCause((cause) =>
            Effect.logError(`Could not reload the documents in ${folder}`, cause),
          ),
        );
      yield* Stream.runForEach(reload, () =>
        // Copied, because each look-up moves its key to the end of the cache: iterating over the cache would never end.
        Effect.flatMap(Cache.keys(folders), (keys) =>
          Effect.forEach([...keys], readAgain, { discard: true }),
        ),
      ).pipe(Effect.forkScoped({ startImmediately: true }));

      const fallback = knowledgeDir ?? (llms.length === 0 ? ownDocuments : null);
      if (fallback !== null) yield* Cache.get(folders, fallback);
      const unavailable = (reason: string) => new AnswerUnavailable({ reason });
      const byName = (name: string | null) => {
        if (name !== null && knowledgeDir === null) {
          const reason = `a chatbot answers from the subfolder "${name}", but PARLEY_KNOWLEDGE_DIR is not set`;
          return unavailable(reason);
        }
        const folder = name === null ? fallback : path.join(knowledgeDir!, name);
        if (folder === null) return Effect.succeed(null);
        return Effect.catch(Cache.get(folders, folder), ({ message }) => unavailable(message));
      };
      return Documents.of({ byName, own: Cache.get(folders, ownDocuments) });
    }),
  );
