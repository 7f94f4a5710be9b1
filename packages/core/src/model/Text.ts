/**
 * Strings that a client may send. Lengths are in Unicode code points. No schema accepts NUL or lone surrogates, because
 * some stores change or reject them. A check's annotation `problem` names its violation in validation errors.
 */
import { Schema } from "effect";

/** Removes NUL characters and replaces lone surrogates with U+FFFD. */
export const storableText = (text: string): string => text.replaceAll("\0", "").toWellFormed();

const storable = Schema.makeFilter<string>(
  (text) => (text.isWellFormed() && !text.includes("\0")) || "contains NUL or a lone surrogate",
  // JSON Schema cannot express the rule. Without `toJsonSchema`, the generator would drop the strings' descriptions.
  { problem: "NOT_STORABLE", toJsonSchema: () => [{}, true] },
);

/**
 * Returns whether the text is empty or consists only of characters with the Unicode property White_Space. Unlike the
 * property, `trim` and `\s` exclude U+0085 and include U+FEFF.
 */
export const isBlank = (text: string): boolean => !notWhite.test(text);

const notWhite = /\P{White_Space}/u;

/** A check that rejects blank strings. */
export const notBlank = Schema.isPattern(notWhite, { problem: "BLANK", message: "is blank" });

const hasAtMost = (codePoints: number) =>
  Schema.isMaxCodePoints(codePoints, { problem: "TOO_LONG" });

/** A string of any length that every store keeps unchanged. */
export const Text = Schema.String.check(storable);

/** The name of a chat: at most 255 code points. */
export const ChatName = Schema.String.check(storable, hasAtMost(255));

/** A client's reference to its own user: at most 60 code points. */
export const UserRef = Schema.String.check(storable, hasAtMost(60));

/** A question: 1 code point up to a number of them, not blank. */
export const questionOf = (maxLength: number) =>
  Schema.String.check(storable, notBlank, hasAtMost(maxLength));

/** The text of a posted entry: 1 to 10,000 code points, not blank. */
export const PostText = Schema.String.check(storable, notBlank, hasAtMost(10_000));

/** A comment on an entry: at most 1,000 code points. */
export const Comment = Schema.String.check(storable, hasAtMost(1_000));

/** Compares two strings by code point, as every list sorts them. UTF-16 order differs above U+FFFF. */
export const compareText = (a: string, b: string): number => {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const [x, y] = [a.codePointAt(i)!, b.codePointAt(i)!];
    if (x !== y) return x - y;
  }
  return a.length - b.length;
};

/**
 * Folds text for searches: normalizes it to NFKC; converts each code point on its own (so without the final-sigma rule)
 * to lower, upper and lower case again; removes a dot above after an `i`, which `İ` would leave; and normalizes to NFKC
 * again. A release that changes these steps needs a new column in the stores that keep folded text.
 */
export const fold = (text: string): string => {
  let result = "";
  for (const codePoint of text.normalize("NFKC")) {
    // Lower case comes first because of ẞ: only its lower-case form, ß, has the upper-case form SS.
    for (const upper of codePoint.toLowerCase().toUpperCase()) result += upper.toLowerCase();
  }
  return result.replaceAll("i\u0307", "i").normalize("NFKC");
};
