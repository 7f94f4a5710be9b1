/**
 * Language models behind endpoints that speak OpenAI's chat completions.
 */
import { describeCause } from "@parley/core";
import { Data, Effect, Redacted } from "effect";
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

/** The optional packages that language models need cannot be loaded. */
export class AiSdkMissing extends Data.TaggedError("AiSdkMissing")<{ readonly cause: unknown }> {
  override get message(): string {
    return `Language models need two more packages (npm install ai@7 @ai-sdk/openai-compatible@3): ${describeCause(this.cause)}`;
  }
}

const loadSdk = Effect.tryPromise({
  try: () => Promise.all([import("@ai-sdk/openai-compatible"), import("ai")]),
  catch: (cause) => new AiSdkMissing({ cause }),
});

/** The model of `settings`, for `layerLanguageModel`. Sends no request. */
export const openAiCompatible = (
  settings: OpenAiCompatibleSettings,
): Effect.Effect<LanguageModel, AiSdkMissing> =>
  loadSdk.pipe(
    Effect.map(([{ createOpenAICompatible }]) =>
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

/**
 * `fetch` that fails on a redirect, which would send the chat to another address, and on the page of a web site, which
 * the AI SDK would read as a stream that breaks off.
 */
const fetchApi: typeof fetch = async (url, init) => {
  const response = await fetch(url, { ...init, redirect: "manual" });
  const { headers, ok, status } = response;
  if (status >= 300 && status < 400) {
    await response.body?.cancel();
    throw makeFailure("client_error", `the address redirects to another one (HTTP ${status})`);
  }
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
