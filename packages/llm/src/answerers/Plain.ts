/**
 * Answerers for `openParley`: plain values in, one layer out.
 */
import { describeCause, type AnswererLayer } from "@parley/core/ports";
import { Data, Effect, Layer, Redacted } from "effect";
import { readKnowledge } from "../documents/Knowledge.ts";
import { openAiCompatible } from "../models/OpenAiCompatible.ts";
import { layerLanguageModel, type LanguageModelOptions } from "./LanguageModelAnswerer.ts";
import { layerOffline } from "./OfflineAnswerer.ts";

/** The optional package that reads files cannot be loaded. */
export class DocumentsNeedFiles extends Data.TaggedError("DocumentsNeedFiles")<{
  readonly cause: unknown;
}> {
  override get message(): string {
    return `Documents need one more package (npm install @effect/platform-node@4): ${describeCause(this.cause)}`;
  }
}

const read = Effect.fnUntraced(function* (folder: string) {
  const [files, path] = yield* Effect.tryPromise({
    try: () =>
      Promise.all([
        import("@effect/platform-node/NodeFileSystem"),
        import("@effect/platform-node/NodePath"),
      ]),
    catch: (cause) => new DocumentsNeedFiles({ cause }),
  });
  return yield* Effect.provide(readKnowledge(folder), [files.layer, path.layer]);
});

/**
 * Answers with a language model behind an endpoint that speaks OpenAI's chat completions.
 *
 * @param options `apiKey` is sent as a bearer token; `documents` is a folder of Markdown to answer from
 */
export const languageModel = ({
  apiKey,
  baseUrl,
  documents,
  model,
  ...options
}: Omit<LanguageModelOptions, "knowledge" | "modelNamed"> & {
  readonly baseUrl: string;
  readonly model: string;
  readonly apiKey?: string | undefined;
  readonly documents?: string | undefined;
}): AnswererLayer =>
  Layer.unwrap(
    Effect.gen(function* () {
      const knowledge = documents === undefined ? null : yield* read(documents);
      const key = apiKey === undefined ? undefined : Redacted.make(apiKey);
      const loaded = yield* openAiCompatible({ baseUrl, model, apiKey: key });
      return layerLanguageModel(loaded, { ...options, knowledge });
    }),
  );

/** Answers with passages of the Markdown files in a folder, without a language model. They are read once. */
export const documents = (folder: string): AnswererLayer =>
  Layer.unwrap(Effect.map(read(folder), (knowledge) => layerOffline(knowledge)));
