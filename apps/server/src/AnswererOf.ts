/**
 * Where answers come from: the configured language models, or else the documents alone.
 */
import {
  layerLanguageModel,
  layerOffline,
  openAiCompatible,
  readKnowledge,
  type Knowledge,
} from "@parley/llm";
import { Effect, Layer, Queue, Ref, Stream } from "effect";
import { fileURLToPath } from "node:url";
import { Settings } from "./Settings.ts";

/** This project's own documentation, which answers when no other documents and no model are named. */
const ownDocuments = fileURLToPath(new URL("../../../docs", import.meta.url));

/** The documents of a folder, read now and at every SIGHUP. */
const readAgainAtHangup = Effect.fnUntraced(function* (folder: string) {
  const documents = yield* Ref.make<Knowledge | null>(yield* readKnowledge(folder));
  const hangups = Stream.callback<void>((queue) =>
    Effect.acquireRelease(
      Effect.sync(() => {
        const tell = () => Queue.offerUnsafe(queue, undefined);
        process.on("SIGHUP", tell);
        return tell;
      }),
      (tell) => Effect.sync(() => process.off("SIGHUP", tell)),
    ),
  );
  yield* Stream.runForEach(hangups, () =>
    readKnowledge(folder).pipe(
      Effect.flatMap((read) => Ref.set(documents, read)),
      Effect.andThen(Effect.logInfo("The documents were read again")),
      // What was read before stays in use.
      Effect.catch((error) => Effect.logError(error.message)),
    ),
  ).pipe(Effect.forkScoped);
  return Ref.get(documents);
});

export const layerAnswerer = Layer.unwrap(
  Effect.gen(function* () {
    const { contextTokens, knowledgeDir, llms } = yield* Settings;
    const [first, ...fallbacks] = llms;
    if (first === undefined) {
      return layerOffline(yield* readAgainAtHangup(knowledgeDir ?? ownDocuments));
    }
    const models = [
      yield* openAiCompatible(first),
      ...(yield* Effect.forEach(fallbacks, openAiCompatible)),
    ] as const;
    const knowledge = knowledgeDir === null ? undefined : yield* readAgainAtHangup(knowledgeDir);
    return layerLanguageModel(models, {
      ...(contextTokens !== null && { contextTokens }),
      ...(knowledge !== undefined && { knowledge }),
    });
  }),
);
