/**
 * The output of commands: text for people, one JSON document for programs.
 */
import { Effect, Stdio, Stream, type PlatformError } from "effect";
import { CliOutput } from "effect/cli";

/** Prints the document as JSON, or the text; fails if it cannot be written. */
export const print = (
  json: boolean,
  document: unknown,
  text: () => string,
): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  printText(json ? JSON.stringify(document) : text());

export const printText = (
  text: string,
): Effect.Effect<void, PlatformError.PlatformError, Stdio.Stdio> =>
  Stdio.Stdio.use(({ stdout }) =>
    Stream.run(Stream.make(`${text}\n`), stdout({ endOnDone: false })),
  );

/** "1 chat", "2 chats". */
export const counted = (count: number, noun: string): string =>
  `${count} ${noun}${count === 1 ? "" : "s"}`;

export type Cell = string | number | Date | null;

export type Columns<Row> = Readonly<Record<string, (row: Row) => Cell>>;

/** The rows under the names of the columns. */
export const table = <Row>(rows: ReadonlyArray<Row>, columns: Columns<Row>): string => {
  const cells = rows.map((row) =>
    Object.values(columns).map((column) => shorten(oneLine(toText(column(row))))),
  );
  const all = [Object.keys(columns), ...cells];
  const widths = all[0]!.map((_, column) =>
    Math.max(...all.map((row) => CliOutput.displayWidth(row[column]!))),
  );
  return all
    .map((row) => row.map((text, column) => pad(text, widths[column]!)).join("  "))
    .map((line) => line.trimEnd())
    .join("\n");
};

/** Prints rows as a JSON array or as a table. */
export const printTable = <Row>(json: boolean, rows: ReadonlyArray<Row>, columns: Columns<Row>) =>
  print(json, rows, () => table(rows, columns));

/** Names with their values, which may have several lines. */
export const details = (pairs: ReadonlyArray<readonly [string, Cell]>): string => {
  const width = Math.max(...pairs.map(([name]) => name.length)) + 2;
  const indented = (cell: Cell) =>
    printable(toText(cell)).replaceAll("\n", `\n${" ".repeat(width)}`);
  return pairs.map(([name, cell]) => name.padEnd(width) + indented(cell)).join("\n");
};

/** The text without what moves the cursor, rings or colours a terminal. */
export const printable = (text: string): string =>
  text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd");

const oneLine = (text: string) => printable(text.replace(/\s+/g, " "));

const toText = (cell: Cell): string =>
  cell === null ? "-" : cell instanceof Date ? cell.toISOString().slice(0, 19) + "Z" : `${cell}`;

const widest = 60;

const shorten = (text: string): string =>
  CliOutput.displayWidth(text) <= widest ? text : `${[...text].slice(0, widest - 1).join("")}…`;

const pad = (text: string, width: number) =>
  text + " ".repeat(Math.max(0, width - CliOutput.displayWidth(text)));
