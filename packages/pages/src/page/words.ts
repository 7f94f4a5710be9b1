import type { german } from "./German.ts";

/** An English string that the widget shows; `{}` is a placeholder for a value. */
export type Phrase = keyof typeof german;

let words: Readonly<Partial<Record<Phrase, string>>> = {};

/** Sets the strings to show instead of the English ones. */
export const setWords = (translation: typeof words): void => void (words = translation);

export const translate = (text: Phrase, ...values: ReadonlyArray<unknown>): string => {
  let at = 0;
  return (words[text] ?? text).replaceAll("{}", () => String(values[at++]));
};
