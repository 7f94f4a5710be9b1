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
  return Effect.map(
    makeEndpoint(settings, "chat/completions"),
    ({ notes, post }): LanguageModel => {
      /** The parameters that the endpoint rejects. */
      let rejected: ReadonlyArray<string> = [];
      const doStream: LanguageModel["doStream"] = async (call) => {
        const messages = call.prompt.map(({ content, role }: Content) => ({
          role,
          content: typeof content === "string" ? content : content.map(({ text }) => text).join(""),
        }));
        for (let names = rejected; ;) {
          const limit = names.includes("max_tokens") ? "max_completion_tokens" : "max_tokens";
          const request = {
            model,
            messages,
            [limit]: call.maxOutputTokens,
            stream: true,
            ...(!names.includes("stream_options") && { stream_options: { include_usage: true } }),
          };
          try {
            const { body } = await post(request, call.headers, call.abortSignal);
            if (names !== rejected)
              notes.push(`it rejects ${names.join(" and ") || "the new name"}`);
            rejected = names;
            const parts = partsOf(body, notes.splice(0));
            return { stream: { getReader: () => ({ read: () => parts.next() }) } };
          } catch (error) {
            const isRepeated = names !== rejected;
            if ("stream_options" in request && isRejected(error, "stream_options")) {
              names = [...names, "stream_options"];
            } else if (isRejected(error, limit) && (limit === "max_tokens" || !isRepeated)) {
              const others = names.filter((name) => name !== "max_tokens");
              names = limit === "max_tokens" ? [...others, limit] : others;
            } else throw error;
          }
        }
      };
      return { provider: `${provider}.chat`, modelId: model, doStream };
    },
  );
};

interface Content {
  readonly role: string;
  readonly content: string | ReadonlyArray<{ readonly text: string }>;
}

async function* partsOf(body: ReadableStream<Uint8Array> | null, notes: ReadonlyArray<string>) {
  for (const note of notes) yield { type: "note", note };
  if (body !== null) yield* readCompletion(body);
}

/** Tells whether an error rejects a parameter: in a field or, if it has none, in its text. */
const isRejected = (error: unknown, name: string): boolean => {
  if (!isRecord(error) || !/^4(00|22)$/.test(`${error["statusCode"]}`)) return false;
  const text = `${error["responseBody"]}`;
  const params = identifiersIn(text).flatMap(([label, value]) =>
    label === paramLabel ? [value] : [],
  );
  const isNamed = (name: string, text: string) => new RegExp(`\\b${name}\\b`).test(text);
  if (params.length > 0) return isNamed(name, params.join(" "));
  // Errors about the length of a prompt name a limit, too, but do not recommend the other name.
  return name === "stream_options"
    ? isNamed(name, text)
    : isNamed("max_tokens", text) && isNamed("max_completion_tokens", text);
};
