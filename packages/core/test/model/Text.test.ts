import { assert, it } from "@effect/vitest";
import { isBlank } from "@parley/core";
import { compareText, fold } from "@parley/core/ports";
import { Schema } from "effect";

const points = (text: string) => Array.from(text, (point) => point.codePointAt(0)!);

/** Compares by code point, written as plainly as possible. */
const compareByCodePoint = (a: string, b: string): number => {
  const [left, right] = [points(a), points(b)];
  for (let at = 0; at < Math.min(left.length, right.length); at++) {
    if (left[at] !== right[at]) return Math.sign(left[at]! - right[at]!);
  }
  return Math.sign(left.length - right.length);
};

/** Strings with surrogates, and with the code points directly below and above the surrogates. */
const Awkward = Schema.Array(
  Schema.Literals(["a", "B", "\ud7ff", "\ue000", "\uffff", "\u{10000}", "\u{10ffff}"]),
);

it.prop("text with surrogates is ordered by code point", [Awkward, Awkward], ([left, right]) => {
  const [a, b] = [left.join(""), right.join("")];
  return Math.sign(compareText(a, b)) === compareByCodePoint(a, b);
});

it.prop("folding a folded string does not change it", [Schema.String], ([text]) => {
  const folded = fold(text);
  return fold(folded) === folded;
});

it("strings that differ only in case or compatibility form fold to the same string", () => {
  for (const [a, b] of [
    ["ÉCOLE", "e\u0301cole"],
    ["ﬁn", "FIN"],
    ["Ｆｕｌｌ", "full"],
    ["ΣΊΣΥΦΟΣ", "σίσυφος"],
    ["ΣΑΣ", "σας"],
    ["Straße", "STRASSE"],
    ["STRAẞE", "straße"],
    ["İstanbul", "istanbul"],
    ["Diyarbakır", "DIYARBAKIR"],
    ["ΐ", "Ϊ́"],
    ["K", "k"],
  ] as const) {
    assert.strictEqual(fold(a), fold(b), a);
  }
  assert.strictEqual(fold("İ"), "i");
  assert.notStrictEqual(fold("e"), fold("é"));
});

it("a string is blank if and only if all its characters are Unicode White_Space", () => {
  for (const text of ["", " \t\n\v\f\r", "\u0085", "\u00a0\u1680\u2003\u2028\u202f\u3000"]) {
    assert.isTrue(isBlank(text), JSON.stringify(text));
  }
  for (const text of ["\ufeff", "\u200b", "\u180e", " a ", "\0"]) {
    assert.isFalse(isBlank(text), JSON.stringify(text));
  }
});
