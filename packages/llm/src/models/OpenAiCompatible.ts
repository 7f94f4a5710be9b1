/**
 * Language models behind endpoints that are compatible with OpenAI's chat completions.
 */
import { optionsOf } from "@parley/core/ports";
import { Effect } from "effect";
import { makeEndpoint, type EndpointInvalid, type EndpointSettings } from "./Endpoint.ts";
import { readCompletion } from "./EventStream.ts";
import { isRecord } from "./Json.ts";
import type { LanguageModel } from "./ModelCall.ts";
import { identifiersIn, paramLabel } from "./ModelFailure.ts";

/** The address of an endpoint, and the model to use there. */
export interface OpenAiCompatibleSettings extends EndpointSettings {
  readonly model: string;
  /** The provider's name in usage records, logs and metrics; default `openai-compatible`. */
  readonly provider?: string;
}

/**
 * Builds the model that the settings describe, for `layerLanguageModel`. Sends no request. If the endpoint rejects a
 * parameter that it does not know, the request is repeated without it, and later requests leave it out.
 */
export const openAiCompatible = (
  chosenOptions: OpenAiCompatibleSettings,
): Effect.Effect<LanguageModel, EndpointInvalid> => {
  const {
    model,
    provider = "openai-compatible",
    ...settings
  } = optionsOf("openAiCompatible", chosenOptions, {
    baseUrl: true,
    apiKey: false,
    model: true,
    provider: false,
    fetch: false,
  });
  return Effect.map(makeEndpoint(settings, "chat/completions"), ({ post }): LanguageModel => {
    let form = { limit: "max_tokens", hasOptions: true };
    const doStream: LanguageModel["doStream"] = async (call) => {
      const notes: Array<string> = [];
      const messages = call.prompt.map(({ content, role }: Content) => ({
        role,
        content: typeof content === "string" ? content : content.map(({ text }) => text).join(""),
      }));
      const rejected: Array<string> = [];
      for (let next = form; ;) {
        const request = {
          model,
          messages,
          [next.limit]: call.maxOutputTokens,
          stream: true,
          ...(next.hasOptions && { stream_options: { include_usage: true } }),
        };
        try {
          const note = (text: string) => notes.push(text);
          const { body } = await post(request, call.headers, call.abortSignal, note);
          if (rejected.length > 0) {
            form = next;
            notes.push(`the endpoint rejects ${rejected.join(" and ")}; requests do without`);
          }
          const parts = partsOf(body, notes);
          return { stream: { getReader: () => ({ read: () => parts.next() }) } };
        } catch (error) {
          const name = nameRejected(error, next.limit);
          const isLimit = name === next.limit;
          if (name === null || rejected.some((other) => isLimit === (other !== options))) {
            throw error;
          }
          rejected.push(name);
          next = isLimit
            ? { ...next, limit: next.limit === limits[0] ? limits[1] : limits[0] }
            : { ...next, hasOptions: false };
        }
      }
    };
    return { provider: `${provider}.chat`, modelId: model, doStream };
  });
};

interface Content {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly text: string }>;
}

async function* partsOf(body: ReadableStream<Uint8Array> | null, notes: ReadonlyArray<string>) {
  for (const note of notes) yield { type: "note", note };
  if (body !== null) yield* readCompletion(body);
}

const limits = ["max_tokens", "max_completion_tokens"] as const;
const options = "stream_options";

/** Returns the parameter that a rejection names, in a field or, if it has none, in its text; `null` for any other. */
const nameRejected = (error: unknown, limit: string): string | null => {
  if (!isRecord(error) || !/^4(00|22)$/.test(`${error["statusCode"]}`)) return null;
  const text = `${error["responseBody"]}`;
  const params = identifiersIn(text).flatMap(([label, value]) =>
    label === paramLabel ? [value] : [],
  );
  const names = (name: string) =>
    new RegExp(`\\b${name}\\b`).test(params.length > 0 ? params.join(" ") : text);
  if (names(options)) return options;
  const isNamed = params.length > 0 ? names(limit) : limits.every(names);
  return isNamed ? limit : null;
};
