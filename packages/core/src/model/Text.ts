/**
 * Strings that a client may send. Lengths are in Unicode code points. No schema accepts NUL or lone surrogates, because
 * some stores change or reject them. The annotation `problem` of a check names its violation in validation errors.
 */
import { Schema } from "effect";

/** The text without NUL, and with U+FFFD in place of lone surrogates. */
export const storableText = (text: string): string => text.replaceAll("\0", "").toWellFormed();

const storable = Schema.makeFilter<string>(
  (text) => (text.isWellFormed() && !text.includes("\0")) || "contains NUL or a lone surrogate",
  // JSON Schema cannot express the rule. Without `toJsonSchema`, the generator would drop the strings' descriptions.
  { problem: "NOT_STORABLE", toJsonSchema: () => [{}, true] },
);

/**
 * Whether the text is empty or consists only of characters with Unicode's property White_Space. `trim` and `\s`
 * differ: they leave out U+0085 and include U+FEFF.
 */
export const isBlank = (text: string): boolean => !notWhite.test(text);

const notWhite = /\P{White_Space}/u;

/** The rule that a text is not blank. */
export const notBlank = Schema.isPattern(notWhite, { problem: "BLANK", message: "is blank" });

const hasAtMost = (codePoints: number) =>
  Schema.isMaxCodePoints(codePoints, { problem: "TOO_LONG" });

/** A string of any length that every store keeps unchanged. */
export const Text = Schema.String.check(storable);

/** The name of a chat: at most 255 code points. */
export const ChatName = Schema.String.check(storable, hasAtMost(255));

/** A client's reference to its own user: at most 60 code points. */
export const UserRef = Schema.String.check(storable, hasAtMost(60));

/** A question: 1 to 200 code points, not white space alone. */
export const Question = Schema.String.check(storable, notBlank, hasAtMost(200));

/** Compares by code point, as every list sorts its texts. The order of UTF-16 differs above U+FFFF. */
export const compareText = (a: string, b: string): number => {
  for (let i = 0; i < Math.min(a.length, b.length); i++) {
    const [x, y] = [a.codePointAt(i)!, b.codePointAt(i)!];
    if (x !== y) return x - y;
  }
  return a.length - b.length;
};

/**
 * The form in which a search compares text: NFKC, then each code point by itself (so without the rule for a final
 * sigma) in lower, upper and again lower case, then without a dot above after an `i`, which `İ` would leave, then
 * NFKC. A release that changes this form needs a new column in the stores that keep folded text.
 */
export const fold = (text: string): string => {
  let result = "";
  for (const codePoint of text.normalize("NFKC")) {
    // Lower case first, because of ẞ: only its lower case, ß, has the upper case SS.
    for (const upper of codePoint.toLowerCase().toUpperCase()) result += upper.toLowerCase();
  }
  return result.replaceAll("i\u0307", "i").normalize("NFKC");
};
