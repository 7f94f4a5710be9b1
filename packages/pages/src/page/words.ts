import type { german } from "./German.ts";

/** A text of the widget, in English; `{}` stands for a value. */
export type Word = keyof typeof german;

let words: Readonly<Partial<Record<Word, string>>> = {};

/** Sets the texts to show instead of those in English. */
export const setWords = (translation: typeof words): void => void (words = translation);

export const say = (text: Word, ...values: ReadonlyArray<unknown>): string => {
  let at = 0;
  return (words[text] ?? text).replaceAll("{}", () => String(values[at++]));
};
