/**
 * Language models behind endpoints that speak OpenAI's chat completions.
 */
import { Effect, Redacted } from "effect";
import type { LanguageModel } from "./ModelCall.ts";
import { makeFailure } from "./ModelFailure.ts";

/** Where a model is, and its name there. */
export interface OpenAiCompatibleSettings {
  /** The address before `/chat/completions`, for example `http://localhost:11434/v1`. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint without authentication. */
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** The provider's name in usage records, logs and metrics; default `openai-compatible`. */
  readonly provider?: string;
}

/** The model of `settings`, for `layerLanguageModel`. Sends no request. */
export const openAiCompatible = (
  settings: OpenAiCompatibleSettings,
): Effect.Effect<LanguageModel> =>
  Effect.promise(() => import("@ai-sdk/openai-compatible")).pipe(
    Effect.map(({ createOpenAICompatible }) =>
      createOpenAICompatible({
        name: settings.provider ?? "openai-compatible",
        baseURL: settings.baseUrl,
        ...(settings.apiKey === undefined ? {} : { apiKey: Redacted.value(settings.apiKey) }),
        includeUsage: true,
        fetch: fetchApi,
        ...(refusesMaxTokens(settings) && {
          transformRequestBody: ({ max_tokens, ...body }) => ({
            ...body,
            max_completion_tokens: max_tokens,
          }),
        }),
      }).chatModel(settings.model),
    ),
  );

/** `fetch` that fails on the page of a web site. The AI SDK would read it as a stream that breaks off. */
const fetchApi: typeof fetch = async (...request) => {
  const response = await fetch(...request);
  const { headers, ok, status } = response;
  const isHtml = /^text\/html\b/i.test(headers.get("content-type") ?? "");
  if (!isHtml || !(ok || status === 404 || status === 405)) return response;
  await response.body?.cancel();
  const page = `the address answers with an HTML page (HTTP ${status}), not with a model's API`;
  throw makeFailure("client_error", `${page}: it often ends with /v1`);
};

/** OpenAI's newer models refuse `max_tokens`, the only limit that most other servers support. */
const refusesMaxTokens = ({ baseUrl, model }: OpenAiCompatibleSettings): boolean =>
  /^https:\/\/(api\.openai\.com|[\w-]+\.openai\.azure\.com)(\/|$)/.test(baseUrl) ||
  /^([\w-]+\/)?(o\d|gpt-[5-9])/.test(model);
