/**
 * Answerers for `openParley`: plain values in, one layer out.
 */
import { describeCause, optionsOf, textOf, type AnswererLayer } from "@parley/core/ports";
import { Data, Effect, Layer, Redacted } from "effect";
import { readKnowledge } from "../documents/Knowledge.ts";
import { openAiCompatible } from "../models/OpenAiCompatible.ts";
import { layerLanguageModel } from "./LanguageModelAnswerer.ts";
import { layerOffline } from "./OfflineAnswerer.ts";

/** The optional package that reads files cannot be loaded. */
export class DocumentsNeedFiles extends Data.TaggedError("DocumentsNeedFiles")<{
  readonly cause: unknown;
}> {
  override get message(): string {
    return `Documents need one more package (npm install @effect/platform-node@4): ${describeCause(this.cause)}`;
  }
}

/**
 * Handles a failed import of an optional package. Without a handler directly after the import, esbuild fails to bundle
 * a program in which the package is not installed.
 */
const rethrow = (error: unknown): never => {
  throw error;
};

const read = (folder: string) =>
  Effect.gen(function* () {
    const [files, path] = yield* Effect.tryPromise({
      try: () =>
        Promise.all([
          import("@effect/platform-node/NodeFileSystem").catch(rethrow),
          import("@effect/platform-node/NodePath").catch(rethrow),
        ]),
      catch: (cause) => new DocumentsNeedFiles({ cause }),
    });
    return yield* Effect.provide(readKnowledge(folder), [files.layer, path.layer]);
  });

/** Settings of a language model for `openParley`. */
export interface LanguageModelSettings {
  /** The endpoint's address, for example `http://localhost:11434/v1`. */
  readonly baseUrl: string;
  /** The model, under the name its provider uses. */
  readonly model: string;
  /** The API key, sent as a bearer token; none by default. */
  readonly apiKey?: string | undefined;
  /** A folder of Markdown and text files to answer from, which are read once; none by default. */
  readonly documents?: string | undefined;
  /** The size of the model's context window in tokens, including the answer; 32,000 by default. */
  readonly contextTokens?: number | undefined;
  /** The maximum number of tokens in an answer; by default a quarter of the context window, at most 4096. */
  readonly maxOutputTokens?: number | undefined;
}

/**
 * Answers with a language model behind an endpoint that implements OpenAI's chat completions API. A call that fails for
 * a transient reason is retried within the answer's deadline. Requires, for `documents`, the package
 * `@effect/platform-node`.
 */
export const languageModel = (settings: LanguageModelSettings): AnswererLayer => {
  const { apiKey, baseUrl, documents, model, ...limits } = optionsOf("languageModel", settings, {
    baseUrl: true,
    model: true,
    apiKey: false,
    documents: false,
    contextTokens: false,
    maxOutputTokens: false,
  });
  return Layer.unwrap(
    Effect.gen(function* () {
      const knowledge = documents === undefined ? null : yield* read(documents);
      const key = apiKey === undefined ? undefined : Redacted.make(apiKey);
      const languageModel = yield* openAiCompatible({ baseUrl, model, apiKey: key });
      return layerLanguageModel(languageModel, { knowledge, ...limits });
    }),
  );
};

/**
 * Answers with passages from the Markdown and text files in a folder, without a language model. The files are read
 * once. Requires the package `@effect/platform-node`.
 */
export const documents = (folder: string): AnswererLayer => {
  const path = textOf("documents", folder, "the path of a folder");
  return Layer.unwrap(Effect.map(read(path), (knowledge) => layerOffline(knowledge)));
};
