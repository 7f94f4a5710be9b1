/**
 * The output of commands: text for people, or one JSON document for programs.
 */
import type { Metadata } from "@parley/core";
import { Effect, Stdio, Stream } from "effect";
import { CliOutput, Flag, GlobalFlag } from "effect/cli";

export const Json = GlobalFlag.Setting("json")({
  flag: Flag.Boolean("json").pipe(Flag.withDefault(false), Flag.withDescription("Print JSON")),
});

/** Writes to standard output. Fails if standard output cannot be written to. */
export const write = (text: string) =>
  Stdio.Stdio.use(({ stdout }) => Stream.run(Stream.make(text), stdout({ endOnDone: false })));

/** Prints the document if `--json` is set, and the text otherwise. */
export const print = Effect.fnUntraced(function* (document: unknown, text: string) {
  yield* write(`${(yield* Json) ? JSON.stringify(document) : text}\n`);
});

/** Formats a count with its noun, as in "1 chat" or "2 chats". */
export const pluralize = (count: number, noun: string, plural = `${noun}s`): string =>
  `${count} ${count === 1 ? noun : plural}`;

export type Cell = string | number | boolean | Date | null | ReadonlyArray<string> | Metadata;

/** Formats rows as a table. Each field has a column, headed by the field's name, as in `USER REF` for `userRef`. */
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

/** Formats names with their values, which may span several lines. */
export const details = (pairs: ReadonlyArray<readonly [string, Cell]>): string => {
  const width = Math.max(...pairs.map(([name]) => name.length)) + 2;
  const indent = (cell: Cell) => toText(cell).replaceAll("\n", `\n${" ".repeat(width)}`);
  return pairs.map(([name, cell]) => name.padEnd(width) + indent(cell)).join("\n");
};

/**
 * Replaces each control character with U+FFFD, because it could move the cursor, ring the bell or change colours. Keeps
 * tabs and line breaks.
 */
export const printable = (text: string): string =>
  text.replaceAll("\r\n", "\n").replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd");

const toText = (cell: Cell): string =>
  cell === null
    ? "-"
    : cell instanceof Date
      ? cell.toISOString().replace(/\.\d+/, "")
      : printable(
          typeof cell === "object" && !Array.isArray(cell) ? JSON.stringify(cell) : String(cell),
        );

const maxCellWidth = 60;

/** Puts the text on one line, and truncates it if it is too wide for a cell. */
const shorten = (text: string): string => {
  const line = text.replace(/\s+/g, " ");
  return CliOutput.displayWidth(line) <= maxCellWidth
    ? line
    : `${[...line].slice(0, maxCellWidth - 1).join("")}…`;
};
