/**
 * What an API key is shown as in all that is told, wherever it came from.
 */

const key =
  /(?:prl_([0-9A-Za-z]{1,16})_[0-9A-Za-z]{12,}|\b([0-9A-Za-z]{12})_[0-9A-Za-z]{32})(?:_[0-9A-Za-z]*)?/g;

/** The text with only the ids of the API keys in it; of mistyped and cut keys, too. */
export const withoutKeys = (text: string): string => text.replace(key, "prl_$1$2_…");
