/**
 * The condition of a search.
 */
import { fold } from "@parley/core";

/**
 * Matches the terms for which the trigram index helps; for any other term a scan of the table is faster than one of the
 * index. The index holds the trigrams of each word, with two spaces before the word and one behind it. A term may begin
 * and end within a word. So the index helps if the term has three letters or digits in a row, one behind a character
 * that ends a word, or two before such a character. In a database with character type C only ASCII has letters.
 */
export const indexedIn = (characterType: string): RegExp => {
  const letters =
    characterType === "C" || characterType === "POSIX" ? "a-z0-9" : "\\p{Alphabetic}\\p{Nd}";
  const [inWord, between] = [`[${letters}]`, `[^${letters}]`];
  return new RegExp(`${inWord}{3}|${between}${inWord}|${inWord}{2}${between}`, "u");
};

/** SQL for whether a chat's folded name contains the term literally. */
export const searchCondition = (
  search: string,
  indexed: RegExp,
  parameter: (value: unknown) => string,
): string => {
  const folded = fold(search);
  return indexed.test(folded)
    ? `folded_name like ${parameter(`%${folded.replace(/[\\%_]/g, "\\$&")}%`)}`
    : `strpos(folded_name, ${parameter(folded)}) > 0`;
};
