/**
 * The output of commands: text for people, one JSON document for programs.
 */
import { Effect, Stdio, Stream } from "effect";
import { CliOutput, Flag, GlobalFlag } from "effect/cli";

export const Json = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(Flag.withDefault(false), Flag.withDescription("Print JSON")),
});

/** Writes to standard output; fails if that is impossible. */
export const write = (text: string) =>
  Stdio.Stdio.use(({ stdout }) => Stream.run(Stream.make(text), stdout({ endOnDone: false })));

/** Prints the document with `--json`, else the text. */
export const print = Effect.fnUntraced(function* (document: unknown, text: string) {
  yield* write(`${(yield* Json) ? JSON.stringify(document) : text}\n`);
});

/** "1 chat", "2 chats". */
export const pluralize = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? "" : "s"}`;

export type Cell = string | number | boolean | Date | null | ReadonlyArray<string>;

/** A table of the rows. Each field has a column with its name as the heading, such as `USER REF` for `userRef`. */
export const table = <Name extends string>(
  rows: ReadonlyArray<Readonly<Record<Name, Cell>>>,
  fields: ReadonlyArray<Name>,
): string => {
  const headings = fields.map((name) => name.replace(/[A-Z]/g, " $&").toUpperCase());
  const cells = rows.map((row) => fields.map((name) => shorten(toText(row[name]))));
  const all = [headings, ...cells];
  const widths = headings.map((_, column) =>
    all.reduce((widest, row) => Math.max(widest, CliOutput.displayWidth(row[column]!)), 0),
  );
  const pad = (text: string, column: number) =>
    text + " ".repeat(widths[column]! - CliOutput.displayWidth(text));
  return all.map((row) => row.map(pad).join("  ").trimEnd()).join("\n");
};

/** Names with their values, which may have several lines. */
export const details = (pairs: ReadonlyArray<readonly [string, Cell]>): string => {
  const width = Math.max(...pairs.map(([name]) => name.length)) + 2;
  const indent = (cell: Cell) => toText(cell).replaceAll("\n", `\n${" ".repeat(width)}`);
  return pairs.map(([name, cell]) => name.padEnd(width) + indent(cell)).join("\n");
};

/**
 * The text with U+FFFD for each control character, which could move the cursor, ring the bell or change colours. Tabs
 * and line breaks stay.
 */
export const printable = (text: string): string =>
  text.replaceAll("\r\n", "\n").replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd");

const toText = (cell: Cell): string =>
  cell === null
    ? "-"
    : cell instanceof Date
      ? cell.toISOString().replace(/\.\d+/, "")
      : printable(String(cell));

const maxCellWidth = 60;

/** The text on one line, cut off where it is wider than a cell. */
const shorten = (text: string): string => {
  const line = text.replace(/\s+/g, " ");
  return CliOutput.displayWidth(line) <= maxCellWidth
    ? line
    : `${[...line].slice(0, maxCellWidth - 1).join("")}…`;
};
