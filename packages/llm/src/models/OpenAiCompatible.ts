/**
 * A language model behind any endpoint that speaks OpenAI's chat completions.
 */
import { Effect, Redacted } from "effect";
import type { LanguageModel } from "./ModelCall.ts";

export interface OpenAiCompatibleSettings {
  /** The address before `/chat/completions`, for example `http://localhost:11434/v1`. */
  readonly baseUrl: string;
  /** Sent as a bearer token; `undefined` for an endpoint that wants none. */
  readonly apiKey: Redacted.Redacted | undefined;
  readonly model: string;
  /** What the provider is called in usage records; default `openai-compatible`. */
  readonly provider?: string;
}

/** The model that `settings` name. Nothing is sent before its first answer. */
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

/** `fetch`, failing with a page of a web site: the AI SDK would take it for a stream that breaks off. */
const fetchApi: typeof fetch = async (...request) => {
  const response = await fetch(...request);
  const type = response.headers.get("content-type");
  if (!response.ok || type === null || !/^text\/html\b/i.test(type)) return response;
  await response.body?.cancel();
  throw Object.assign(new Error("an HTML page"), {
    statusCode: response.status,
    responseHeaders: { "content-type": type },
  });
};

/** OpenAI's newer models refuse the bound of output by its old name, which is all that other servers know. */
const refusesMaxTokens = ({ baseUrl, model }: OpenAiCompatibleSettings): boolean =>
  /^https:\/\/(api\.openai\.com|[\w-]+\.openai\.azure\.com)(\/|$)/.test(baseUrl) ||
  /^([\w-]+\/)?(o\d|gpt-[5-9])/.test(model);
