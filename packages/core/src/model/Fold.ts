/**
 * The one folding that search uses on both sides, so that every store finds the same chats.
 */

/** Stored beside folded text; a change of {@link fold} raises it and refolds by migration. */
export const foldVersion = 1;

const ascii = /^[\x00-\x7f]*$/;

/** NFKC, then each code point lower-cased on its own (no final sigma rule), then NFKC. */
export const fold = (text: string): string => {
  if (ascii.test(text)) return text.toLowerCase();
  let folded = "";
  for (const codePoint of text.normalize("NFKC")) folded += codePoint.toLowerCase();
  return folded.normalize("NFKC");
};
