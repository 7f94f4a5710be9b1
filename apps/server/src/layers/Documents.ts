/**
 * The documents that chatbots answer from.
 */
import { AnswerUnavailable } from "@parley/core/ports";
import { type Knowledge, type KnowledgeUnreadable, readKnowledge } from "@parley/llm";
import { Cache, Context, Duration, Effect, Exit, Layer, Option, Path, Stream } from "effect";
import { on } from "node:events";
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Settings } from "../Settings.ts";

/**
 * Finds a path of this project's documentation, beside the bundle or in the checkout. Chatbots answer from that
 * documentation by default if neither PARLEY_KNOWLEDGE_DIR nor a language model is set.
 */
const locate = (path: string) =>
  [path, `../../../../${path}`]
    .map((location) => fileURLToPath(new URL(location, import.meta.url)))
    .find(existsSync)!;
export const ownDocuments = locate("docs");
export const ownReadme = locate("README.md");

const read = (folder: string, previous: Knowledge | null = null) =>
  readKnowledge(folder, folder === ownDocuments ? [ownReadme] : [], previous);

export class Documents extends Context.Service<
  Documents,
  {
    /**
     * The documents in the subfolder of this name in PARLEY_KNOWLEDGE_DIR, read when they are first needed; for `null`
     * the default ones, or `null` if there are none. Fails if the folder cannot be read.
     */
    readonly byName: (name: string | null) => Effect.Effect<Knowledge | null, AnswerUnavailable>;
    /** This project's documentation, read when it is first needed. */
    readonly own: Effect.Effect<Knowledge, KnowledgeUnreadable>;
  }
>()("@parley/server/Documents") {}

/** Emits for each SIGHUP. Signals that arrive while one is handled count as one. */
export const reloadOnSighup: Stream.Stream<unknown> = Stream.suspend(() =>
  Stream.fromAsyncIterable(on(process, "SIGHUP"), String),
).pipe(Stream.orDie, Stream.buffer({ capacity: 1, strategy: "sliding" }));

/**
 * Reads the default documents when it is built, and fails if they cannot be read.
 *
 * @param reload each element reloads every folder read so far; a folder that cannot be read keeps its documents
 */
export const layerDocuments = (reload: Stream.Stream<unknown>) =>
  Layer.effect(
    Documents,
    Effect.gen(function* () {
      const { knowledgeDir, llms } = yield* Settings;
      const path = yield* Path.Path;
      const folders = yield* Cache.makeWith((folder: string) => read(folder), {
        capacity: 10_000,
        timeToLive: (exit) => (Exit.isSuccess(exit) ? Duration.infinity : Duration.zero),
      });
      const readAgain = (folder: string) =>
        Cache.getOption(folders, folder).pipe(
          Effect.flatMap((previous) => read(folder, Option.getOrNull(previous))),
          Effect.flatMap((knowledge) => Cache.set(folders, folder, knowledge)),
          Effect.andThen(Effect.logInfo(`Reloaded the documents in ${folder}`)),
          Effect.catchCause((cause) =>
            Effect.logError(`Could not reload the documents in ${folder}`, cause),
          ),
        );
      yield* Stream.runForEach(reload, () =>
        // A copy: each look-up moves its folder to the end of the cache, so a walk over the cache itself would not end.
        Effect.flatMap(Cache.keys(folders), (keys) =>
          Effect.forEach([...keys], readAgain, { discard: true }),
        ),
      ).pipe(Effect.forkScoped({ startImmediately: true }));

      const fallback = knowledgeDir ?? (llms.length === 0 ? ownDocuments : null);
      if (fallback !== null) yield* Cache.get(folders, fallback);
      const unavailable = (reason: string) => new AnswerUnavailable({ reason });
      const byName = (name: string | null) => {
        if (name !== null && knowledgeDir === null) {
          const reason = `a chatbot uses the documents "${name}", but PARLEY_KNOWLEDGE_DIR is not set`;
          return unavailable(reason);
        }
        const folder = name === null ? fallback : path.join(knowledgeDir!, name);
        if (folder === null) return Effect.succeed(null);
        return Effect.catch(Cache.get(folders, folder), ({ message }) => unavailable(message));
      };
      return Documents.of({ byName, own: Cache.get(folders, ownDocuments) });
    }),
  );
