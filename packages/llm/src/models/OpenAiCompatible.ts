/**
 * Language models behind endpoints that are compatible with OpenAI's chat completions.
 */
import { describeCause, optionsOf } from "@parley/core/ports";
import { Data, Effect, Redacted } from "effect";
import { rethrow, type LanguageModel } from "./ModelCall.ts";
import { makeFailure } from "./ModelFailure.ts";

/** The address of an endpoint, and the model to use there. */
export interface OpenAiCompatibleSettings {
  /** The endpoint's address without `/chat/completions`, for example `http://localhost:11434/v1`. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint without authentication. */
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** The provider's name in usage records, logs and metrics; default `openai-compatible`. */
  readonly provider?: string;
  /** The function that sends the requests; default: the global `fetch`. */
  readonly fetch?: typeof fetch;
}

/** The optional packages that language models need cannot be loaded. */
export class AiSdkMissing extends Data.TaggedError("AiSdkMissing")<{ readonly cause: unknown }> {
  override get message(): string {
    return `Language models need two more packages (npm install ai@7 @ai-sdk/openai-compatible@3): ${describeCause(this.cause)}`;
  }
}

/** Builds the model that the settings describe, for `layerLanguageModel`. Sends no request. */
export const openAiCompatible = (
  settings: OpenAiCompatibleSettings,
): Effect.Effect<LanguageModel, AiSdkMissing> => {
  const {
    apiKey,
    baseUrl,
    fetch: send = fetch,
    model,
    provider = "openai-compatible",
  } = optionsOf("openAiCompatible", settings, {
    baseUrl: true,
    apiKey: false,
    model: true,
    provider: false,
    fetch: false,
  });
  return Effect.tryPromise({
    try: () =>
      Promise.all([
        import("@ai-sdk/openai-compatible").catch(rethrow),
        import("ai").catch(rethrow),
      ]),
    catch: (cause) => new AiSdkMissing({ cause }),
  }).pipe(
    Effect.map(([{ createOpenAICompatible }]) =>
      createOpenAICompatible({
        name: provider,
        baseURL: baseUrl,
        ...(apiKey !== undefined && { apiKey: Redacted.value(apiKey) }),
        includeUsage: true,
        fetch: fetchEvents(send),
        metadataExtractor: {
          extractMetadata: async () => undefined,
          createStreamExtractor: observeChunks,
        },
        ...((openAiHost.test(baseUrl) || newerModel.test(model)) && {
          transformRequestBody: ({ max_tokens, ...body }) => ({
            ...body,
            max_completion_tokens: max_tokens,
          }),
        }),
      }).chatModel(model),
    ),
  );
};

const fetchEvents =
  (send: typeof fetch): typeof fetch =>
  async (url, init) => {
    // A redirect would send the chat to another address.
    const response = await send(url, { ...init, redirect: "manual" });
    // The AI SDK would mistake a page from a proxy or a wrong address for a stream that was cut off.
    if (response.ok && response.headers.get("content-type")?.startsWith("text/html")) {
      await response.body?.cancel();
      throw makeFailure("client_error", "the address returned an HTML page");
    }
    return response;
  };

/** Records whether a stream ended in mid-text, because some servers send a blank `finish_reason` with each chunk. */
const observeChunks = () => {
  let isOpen = false;
  return {
    processChunk: (chunk: any) => {
      const { delta, finish_reason: word } = chunk.choices?.[0] ?? {};
      isOpen = Boolean(delta?.content) && /^(null|none)?$/i.test(word ?? "");
    },
    buildMetadata: () => ({ parley: { isOpen } }),
  };
};

/** OpenAI's newer models reject `max_tokens`, the only token limit that most other servers support. */
const openAiHost = /^https:\/\/(api\.openai\.com|[\w-]+\.openai\.azure\.com)(\/|$)/;
const newerModel = /^([\w-]+\/)?(o\d|gpt-[5-9])/;
