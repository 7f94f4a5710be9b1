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
  (words[text] ?? text)
    .split("{}")
    .flatMap((part, at) => (at === 0 ? [part] : [values[at - 1], part]));

/**
 * Returns the language for dates and numbers; `undefined`, which stands for the browser's, if the site's own is not a
 * valid one, such as `de_DE`. English dates begin with the day.
 */
export const toLocale = (): string | undefined => {
  const { lang } = document.documentElement;
  try {
    return lang === "en" ? "en-GB" : Intl.getCanonicalLocales(lang)[0];
  } catch {
    return undefined;
  }
};

export const translate = (text: Phrase, ...values: ReadonlyArray<unknown>): string =>
  weave(text, ...values.map(String)).join("");
