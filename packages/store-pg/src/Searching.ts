/**
 * Where chats are searched, and the conditions of their filters.
 */
import { fold, type ChatQuery } from "@parley/core";

/** Where and how chats are searched. */
export interface Searching {
  /**
   * Below a policy no index serves a search, because LIKE may not look at rows that the policy hides;
   * `own_chat` are the chats of the transaction's subject, without.
   */
  readonly from: "chat" | "own_chat";
  /** What the index knows part of. For anything else it would go through all it has, which takes longest. */
  readonly indexed: RegExp;
}

/**
 * The index holds three characters each of a word with two spaces before it and one behind. A term may begin and
 * end in the middle of a word, so it needs three letters or digits in a row, or one behind what ends a word, or
 * two before that. In a database whose character type is C only those of ASCII are any.
 */
export const indexedIn = (characterType: string): RegExp => {
  const letters =
    characterType === "C" || characterType === "POSIX" ? "a-z0-9" : "\\p{Alphabetic}\\p{Nd}";
  const [inWord, between] = [`[${letters}]`, `[^${letters}]`];
  return new RegExp(`${inWord}{3}|${between}${inWord}|${inWord}{2}${between}`, "u");
};

/** In the table itself, and by what is indexed in any database. */
export const plainly: Searching = { from: "chat", indexed: indexedIn("C") };

/** The empty search finds every chat. */
export const isSearch = ({ search }: Pick<ChatQuery, "search">) => search !== null && search !== "";

/** What the filters but the one for an id ask for, the search apart from the others; their values are added to `values`. */
export const conditionsOf = (
  { search, userRef }: Pick<ChatQuery, "search" | "userRef">,
  values: Array<unknown>,
  { indexed }: Pick<Searching, "indexed">,
): readonly [others: string, search: string] => {
  const parameter = (value: unknown) => `$${values.push(value)}`;
  const others = ["chatbot_id = $1"];
  if (userRef !== null) others.push(`user_ref = ${parameter(userRef)}`);
  const folded = fold(search ?? "");
  const matches =
    search === null || search === ""
      ? "true"
      : indexed.test(folded)
        ? `folded_name like ${parameter(`%${folded.replace(/[\\%_]/g, "\\$&")}%`)}`
        : `strpos(folded_name, ${parameter(folded)}) > 0`;
  return [others.join(" and "), matches];
};
