export const isRecord = (u: unknown): u is Record<string, unknown> =>
  typeof u === "object" && u !== null;

/** Parses JSON, even with the `NaN` and `Infinity` of some servers; `undefined` if it is something else. */
export const parseJson = (text: string): unknown => {
  for (const json of [text, text.replace(/([:[,]\s*)-?(NaN|Infinity)\b/g, "$1null")]) {
    try {
      return JSON.parse(json);
    } catch {}
  }
  return undefined;
};
