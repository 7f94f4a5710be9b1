import type { german } from "./German.ts";

/** A text of the pages, in English; `{}` stands for a value. */
export type Word = keyof typeof german;

let words: Readonly<Partial<Record<Word, string>>> = {};

/** Texts in another language, by those in English. */
export const setWords = (translation: typeof words): void => void (words = translation);

export const say = (text: Word, ...values: ReadonlyArray<unknown>): string => {
  let at = 0;
  return (words[text] ?? text).replaceAll("{}", () => String(values[at++]));
};
