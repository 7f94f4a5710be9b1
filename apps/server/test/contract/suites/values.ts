/** Values that the suite sends in more than one place. */

/** Strings of at most 60 code points that must be returned unchanged. */
export const clean: ReadonlyArray<readonly [string, string]> = [
  ["astral characters", "😀🏳️‍🌈𝒳\u{10ffff}"],
  ["decomposed letters stay decomposed", "e\u0301 Å \u212b A\u030a"],
  ["control characters other than NUL", "\u0001\b\t\n\v\f\r\u001f\u007f\u0085"],
  ["non-characters", "\ufffe\uffff\ufdd0"],
  ["the replacement character", "\ufffd"],
  ["a leading byte order mark", "\ufeffname"],
  ["surrounding white space", "  \u00a0name\u3000 "],
  ["right-to-left text and marks", "\u202eשלום\u202c مرحبا"],
  ["quotes, backslashes and markup", "\"'`\\ \\u0000 </script><b>&amp; %00 ${x} {{x}} ; --"],
  ["line separators", "a\u2028b\u2029c"],
  ["text that looks like another type", "null"],
  ["digits", "00012"],
];

/** Strings that cause a 422 wherever a client can send a string. */
export const hostileStrings: ReadonlyArray<readonly [string, string]> = [
  ["NUL alone", "\u0000"],
  ["NUL inside", "a\u0000b"],
  ["NUL at the end", "a\u0000"],
  ["a lone high surrogate", "a\ud83d"],
  ["a lone low surrogate", "\ude00a"],
  ["surrogates in the wrong order", "\ude00\ud83d"],
  ["a high surrogate before a pair", "\ud83d😀"],
];

/** JSON for values that are neither strings nor null. */
export const hostileJson: ReadonlyArray<readonly [string, string]> = [
  ["a number", "1"],
  ["zero", "0"],
  ["a number too large for a double", "1e999"],
  ["true", "true"],
  ["false", "false"],
  ["an empty array", "[]"],
  ["an array that contains a string", '["x"]'],
  ["an empty object", "{}"],
  ["an object that looks like a string", '{"toString":"x","length":1}'],
];

/** Percent-encoded query values that are not plain decimal integers up to 2^53 - 1. */
export const notIntegers: ReadonlyArray<readonly [string, string]> = [
  ["an empty string", ""],
  ["a letter", "a"],
  ["an exponent", "1e2"],
  ["a plus sign", "%2B1"],
  ["a leading space", "%201"],
  ["a trailing space", "1%20"],
  ["a plus sign that decodes to a space", "+1"],
  ["a line feed", "1%0A"],
  ["hexadecimal", "0x1"],
  ["octal", "0o7"],
  ["a zero fraction", "1.0"],
  ["a fraction", "1.5"],
  ["a trailing point", "1."],
  ["a minus sign", "-1"],
  ["minus zero", "-0"],
  ["an underscore", "1_0"],
  ["a thousands separator", "1,000"],
  ["a BigInt suffix", "1n"],
  ["a trailing NUL", "1%00"],
  ["full-width digits", "%EF%BC%91"],
  ["Arabic digits", "%D9%A3"],
  ["2^53", "9007199254740992"],
  ["2^63", "9223372036854775808"],
  ["three hundred digits", "9".repeat(300)],
  ["null", "null"],
  ["NaN", "NaN"],
  ["Infinity", "Infinity"],
];
