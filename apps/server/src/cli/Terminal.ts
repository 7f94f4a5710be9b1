/**
 * Typesets Markdown as it arrives, for a terminal: lines break between words, tables have columns, and links show their
 * addresses. Code stays as it is.
 */
import { CliOutput } from "effect/cli";

const widthOf = CliOutput.displayWidth;
const cellsOf = (row: string) =>
  row
    .trim()
    .replace(/^\||\|$/g, "")
    .split(/(?<!\\)\|/)
    .map((cell) => cell.trim());
const withAddresses = (text: string) =>
  text.replace(/\[([^\]]+)\]\(([^)\s]+)\)/g, (_, label, address) => `${label} (${address})`);

/** A table as columns or, where they do not fit, as a list of each row's values. */
const setTable = (lines: ReadonlyArray<string>, width: number): string => {
  const [head, , ...rows] = lines.map((line) => cellsOf(withAddresses(line)));
  const widths = head!.map((_, at) =>
    Math.max(...[head!, ...rows].map((row) => widthOf(row[at] ?? ""))),
  );
  const toRow = (row: ReadonlyArray<string>) =>
    widths
      .map((size, at) => (row[at] ?? "") + " ".repeat(size - widthOf(row[at] ?? "")))
      .join("  ")
      .trimEnd();
  if (toRow(widths.map((size) => "-".repeat(size))).length <= width) {
    return [head!, widths.map((size) => "-".repeat(size)), ...rows].map(toRow).join("\n");
  }
  return rows
    .map((row) => row.map((cell, at) => `${head![at] ?? ""}: ${cell}`).join("\n"))
    .join("\n\n");
};

/** Returns functions that typeset the next piece of a text, and its end; each returns what can be printed already. */
export const makeTypesetter = (width: number) => {
  let rest = "";
  let column = 0;
  let table: Array<string> = [];
  let isCode = false;
  const setWords = (text: string): string => {
    let set = "";
    for (const word of text.match(/\S+\s*|\s+/g) ?? []) {
      if (column > 0 && column + widthOf(word.trimEnd()) > width) {
        set += "\n";
        column = 0;
      }
      set += word;
      column += widthOf(word);
    }
    return set;
  };
  const setLine = (line: string): string => {
    if (column === 0 && line.trimStart().startsWith("```")) isCode = !isCode;
    if (column === 0 && !isCode && /^\s*\|/.test(line)) {
      table.push(line);
      return "";
    }
    const before = table.length > 1 ? setTable(table, width) : table.join("\n");
    const set = isCode ? line : setWords(withAddresses(line));
    const all = (table.length > 0 ? `${before}\n` : "") + set + "\n";
    table = [];
    column = 0;
    return all;
  };
  const push = (piece: string): string => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop()!;
    let set = lines.map(setLine).join("");
    // Words of an unfinished line that are neither in a table nor in code, up to a link.
    const words =
      isCode || table.length > 0 || (column === 0 && /^\s*[|`]/.test(rest))
        ? 0
        : (/^[^[]*\s/.exec(rest)?.[0].length ?? 0);
    set += setWords(rest.slice(0, words));
    rest = rest.slice(words);
    return set;
  };
  const end = (): string => {
    const set = rest === "" && table.length === 0 ? "\n" : setLine(rest);
    rest = "";
    return set + (table.length > 0 ? setLine("") : "");
  };
  return { push, end };
};
