/**
 * Answerers for `openParley`: plain values in, one layer out.
 */
import { describeCause, type AnswererLayer } from "@parley/core/ports";
import { Data, Effect, Layer, Redacted } from "effect";
import { readKnowledge } from "../documents/Knowledge.ts";
import { rethrow } from "../models/ModelCall.ts";
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

/** A language model for `openParley`. */
export interface LanguageModelSettings {
  /** The address before `/chat/completions`, for example `http://localhost:11434/v1`. */
  readonly baseUrl: string;
  /** The model, by its provider's name for it. */
  readonly model: string;
  /** Sent as a bearer token; none by default. */
  readonly apiKey?: string | undefined;
  /** A folder of Markdown and text files to answer from, which are read once; none by default. */
  readonly documents?: string | undefined;
  /** The tokens of the model's context, the answer included; 32,000 by default. */
  readonly contextTokens?: number | undefined;
  /** The limit on an answer's tokens; by default a quarter of the context, at most 4096. */
  readonly maxOutputTokens?: number | undefined;
}

/**
 * Answers with a language model behind an endpoint that speaks OpenAI's chat completions. A call that fails for a
 * transient reason is repeated within the time limit of the answer. Needs `ai` and `@ai-sdk/openai-compatible`, and for
 * `documents` also `@effect/platform-node`.
 */
export const languageModel: (settings: LanguageModelSettings) => AnswererLayer = ({
  apiKey,
  baseUrl,
  documents,
  model,
  ...limits
}) =>
  Layer.unwrap(
    Effect.gen(function* () {
      const knowledge = documents === undefined ? null : yield* read(documents);
      const key = apiKey === undefined ? undefined : Redacted.make(apiKey);
      const languageModel = yield* openAiCompatible({ baseUrl, model, apiKey: key });
      return layerLanguageModel(languageModel, { knowledge, ...limits });
    }),
  );

/**
 * Answers with passages of the Markdown and text files in a folder, which are read once, without a language model.
 * Needs `@effect/platform-node`.
 */
export const documents = (folder: string): AnswererLayer =>
  Layer.unwrap(Effect.map(read(folder), (knowledge) => layerOffline(knowledge)));
