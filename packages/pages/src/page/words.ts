import type { ComponentChildren } from "preact";
import type { germanOfPlayground } from "./GermanOfPlayground.ts";
import type { german } from "./German.ts";

/** An English text of the pages; `{}` is a placeholder for a value. */
export type Phrase = keyof typeof german | keyof typeof germanOfPlayground;

let words: Readonly<Partial<Record<Phrase, string>>> = {};

/** Sets the texts to show instead of the English ones. */
export const setWords = (translation: typeof words): void => void (words = translation);

/** Returns the parts of a text, with elements in place of its placeholders. */
export const weave = (
  text: Phrase,
  ...values: ReadonlyArray<ComponentChildren>
): ReadonlyArray<ComponentChildren> =>
  (words[text] ?? text).split("{}").flatMap((part, at) => [part, values[at]]);

/** Returns the language for dates and numbers. English dates begin with the day. */
export const toLocale = (): string => {
  const { lang } = document.documentElement;
  return lang === "en" ? "en-GB" : lang;
};

export const translate = (text: Phrase, ...values: ReadonlyArray<unknown>): string =>
  weave(text, ...values.map(String)).join("");
