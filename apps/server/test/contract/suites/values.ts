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
  ["NUL inside", "a\u0000b"],
  ["a lone high surrogate", "a\ud83d"],
  ["surrogates in the wrong order", "\ude00\ud83d"],
];

/** JSON for values that are neither strings nor null. */
export const hostileJson: ReadonlyArray<readonly [string, string]> = [
  ["a number", "1"],
  ["true", "true"],
  ["an array that contains a string", '["x"]'],
  ["an object that looks like a string", '{"toString":"x","length":1}'],
];

/** Percent-encoded query values that are not plain decimal integers up to 2^53 - 1. */
export const notIntegers: ReadonlyArray<readonly [string, string]> = [
  ["an empty string", ""],
  ["an exponent", "1e2"],
  ["a plus sign", "%2B1"],
  ["a leading space", "%201"],
  ["a fraction", "1.5"],
  ["a minus sign", "-1"],
  ["full-width digits", "%EF%BC%91"],
  ["2^53", "9007199254740992"],
];
