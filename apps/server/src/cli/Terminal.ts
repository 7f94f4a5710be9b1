/**
 * Typesets Markdown for a terminal as it arrives: breaks lines between words, aligns the columns of tables, and shows
 * the addresses of links. Leaves code unchanged.
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

/** Formats a table in columns or, if they do not fit, as a list of each row's values. */
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

/** Creates a typesetter: `push` adds a piece of Markdown, and `end` sets the rest. Both return what to print next. */
export const makeTypesetter = (width: number) => {
  let rest = "";
  let column = 0;
  let table: Array<string> = [];
  let isCode = false;
  const setWords = (text: string): string => {
    let output = "";
    for (const word of text.match(/\S+\s*|\s+/g) ?? []) {
      if (column > 0 && column + widthOf(word.trimEnd()) > width) {
        output += "\n";
        column = 0;
      }
      output += word;
      column += widthOf(word);
    }
    return output;
  };
  const setLine = (line: string): string => {
    if (column === 0 && line.trimStart().startsWith("```")) isCode = !isCode;
    if (column === 0 && !isCode && /^\s*\|/.test(line)) {
      table.push(line);
      return "";
    }
    const before = table.length > 1 ? setTable(table, width) : table.join("\n");
    const output = isCode ? line : setWords(withAddresses(line));
    const all = (table.length > 0 ? `${before}\n` : "") + output + "\n";
    table = [];
    column = 0;
    return all;
  };
  const push = (piece: string): string => {
    const lines = (rest + piece).split("\n");
    rest = lines.pop()!;
    let output = lines.map(setLine).join("");
    // How many characters of the unfinished line can be set: the words before a link, outside tables and code.
    const words =
      isCode || table.length > 0 || (column === 0 && /^\s*[|`]/.test(rest))
        ? 0
        : (/^[^[]*\s/.exec(rest)?.[0].length ?? 0);
    output += setWords(rest.slice(0, words));
    rest = rest.slice(words);
    return output;
  };
  const end = (): string => {
    const output = rest === "" && table.length === 0 ? "\n" : setLine(rest);
    rest = "";
    return output + (table.length > 0 ? setLine("") : "");
  };
  return { push, end };
};
