/**
 * The query part of a request's target. Reading it never fails: what cannot be decoded is kept as
 * {@link undecodable}, which no rule lets pass.
 */

/** Stands for a value that is no percent-encoded UTF-8; holds NUL, so that no text rule lets it pass. */
export const undecodable = "\0";

export type Query = ReadonlyMap<string, ReadonlyArray<string>>;

const empty: Query = new Map();

/** The values of every parameter; `name[]` and `name[0]` are spellings of `name` for `arrays`. */
export const readQuery = (url: string, arrays: ReadonlyArray<string>): Query => {
  const start = url.indexOf("?");
  if (start === -1 || start === url.length - 1) return empty;
  const values = new Map<string, Array<string>>();
  const indexed: Array<{ readonly name: string; readonly index: number; readonly value: string }> =
    [];
  const add = (name: string, value: string) => {
    const known = values.get(name);
    if (known === undefined) values.set(name, [value]);
    else known.push(value);
  };
  for (const pair of url.slice(start + 1).split("&")) {
    if (pair === "") continue;
    const equals = pair.indexOf("=");
    const name = decode(equals === -1 ? pair : pair.slice(0, equals));
    const value = equals === -1 ? "" : decode(pair.slice(equals + 1));
    const spelled = /^(.*)\[(\d{0,6})\]$/s.exec(name);
    if (spelled === null || !arrays.includes(spelled[1]!)) add(name, value);
    else if (spelled[2] === "") add(spelled[1]!, value);
    else indexed.push({ name: spelled[1]!, index: Number(spelled[2]), value });
  }
  indexed.sort((a, b) => a.index - b.index);
  for (const { name, value } of indexed) add(name, value);
  return values;
};

const decode = (text: string): string => {
  if (!/[%+]/.test(text)) return text;
  try {
    return decodeURIComponent(text.replaceAll("+", " "));
  } catch {
    return undecodable;
  }
};
