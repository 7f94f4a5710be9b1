/**
 * How many tokens a text takes at most.
 */
import { Effect } from "effect";

export type TokenCount = (text: string) => number;

const encoder = new TextEncoder();

/** No encoding in use makes more tokens of a text than it has bytes of UTF-8. */
export const bytes: TokenCount = (text) => encoder.encode(text).length;

/**
 * The count for a model: exact when the model's encoding is known, else the bound in bytes. The
 * tokenizer and its tables (some megabytes) are loaded for the models that it knows.
 */
export const tokenCountFor = (modelId: string): Effect.Effect<TokenCount> =>
  Effect.promise(async () => {
    // Routers put the maker's name before the model's.
    const name = modelId.slice(modelId.lastIndexOf("/") + 1);
    if (!/^(gpt|chatgpt|o\d)/.test(name)) return bytes;
    const [models, { DEFAULT_ENCODING, modelToEncodingMap }] = await Promise.all([
      import("gpt-tokenizer/models"),
      import("gpt-tokenizer/mapping"),
    ]);
    if (!Object.hasOwn(models, name)) return bytes;
    const known: Readonly<Record<string, string>> = modelToEncodingMap;
    switch (known[name] ?? DEFAULT_ENCODING) {
      case "o200k_base":
        return exactly((await import("gpt-tokenizer/encoding/o200k_base")).countTokens);
      case "cl100k_base":
        return exactly((await import("gpt-tokenizer/encoding/cl100k_base")).countTokens);
      default:
        return bytes;
    }
  });

type CountTokens = (text: string, options: { disallowedSpecial: Set<string> }) => number;

/** What the encodings take for one word. */
const endlessWord = /[\p{L}\p{M}]{200}|[^\s\p{L}\p{N}]{200}|\s{200}/u;

/** Code units of text whose count is remembered: counting a full window takes some 30 ms. */
const remembered = 2_000_000;

const exactly = (countTokens: CountTokens): TokenCount => {
  const counts = new Map<string, number>();
  let held = 0;
  return (text) => {
    const known = counts.get(text);
    if (known !== undefined) return known;
    // The time for one word grows with the square of its length, up to a minute within an answer.
    const count = endlessWord.test(text)
      ? bytes(text)
      : // Left out, a text that spells a special token throws; spelt out it takes more than one.
        countTokens(text, { disallowedSpecial: new Set() });
    held += text.length;
    if (held > remembered) {
      counts.clear();
      held = text.length;
    }
    counts.set(text, count);
    return count;
  };
};
