/** Strings of at most 60 code points that must be returned unchanged. */
export const clean: ReadonlyArray<string> = [
  // Astral characters.
  "😀🏳️‍🌈𝒳\u{10ffff}",
  // Decomposed letters stay decomposed.
  "e\u0301 Å \u212b A\u030a",
  // Control characters other than NUL.
  "\u0001\b\t\n\v\f\r\u001f\u007f\u0085",
  // Non-characters and the replacement character.
  "\ufffe\uffff\ufdd0\ufffd",
  "\ufeffa leading byte order mark",
  "  \u00a0surrounding white space\u3000 ",
  "\u202eשלום\u202c مرحبا a\u2028b\u2029c",
  "\"'`\\ \\u0000 </script><b>&amp; %00 ${x} {{x}} ; --",
  "null",
  "00012",
];
