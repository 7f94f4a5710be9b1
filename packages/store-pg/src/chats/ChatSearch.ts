/**
 * Where chats are searched, and by which condition.
 */
import { fold, type ChatQuery } from "@parley/core";

export interface Search {
  /**
   * Below a policy no index serves LIKE, because it may not look at rows that the policy hides; `own_chat` has the
   * chats of the transaction's chatbot, and no policy.
   */
  readonly from: "chat" | "own_chat";
  /** Terms of which the trigram index holds a part. For any other a scan of the table is quicker than one of the index. */
  readonly indexed: RegExp;
}

/**
 * The index holds each three characters of a word that has two spaces before it and one behind. A term may begin and end
 * in the middle of a word, so it needs three letters or digits in a row, or one behind a character that ends a word, or two
 * before such a character. In a database of character type C only ASCII has letters.
 */
export const indexedIn = (characterType: string): RegExp => {
  const letters =
    characterType === "C" || characterType === "POSIX" ? "a-z0-9" : "\\p{Alphabetic}\\p{Nd}";
  const [inWord, between] = [`[${letters}]`, `[^${letters}]`];
  return new RegExp(`${inWord}{3}|${between}${inWord}|${inWord}{2}${between}`, "u");
};

/** An empty search filters nothing. */
export const isSearch = (query: ChatQuery): query is ChatQuery & { readonly search: string } =>
  query.search !== null && query.search !== "";

/** Whether a chat's folded name has the term as a literal part. */
export const conditionOf = (
  search: string,
  { indexed }: Search,
  parameter: (value: unknown) => string,
): string => {
  const folded = fold(search);
  return indexed.test(folded)
    ? `folded_name like ${parameter(`%${folded.replace(/[\\%_]/g, "\\$&")}%`)}`
    : `strpos(folded_name, ${parameter(folded)}) > 0`;
};
