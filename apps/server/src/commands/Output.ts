/**
 * What commands print: for people text, for programs one JSON document.
 */
import { Effect, Stdio, Stream, type PlatformError } from "effect";
import { CliOutput, Flag } from "effect/cli";

export const jsonFlag = Flag.Boolean("json").pipe(
  Flag.withDefault(false),
  Flag.withDescription("Print JSON, for programs"),
);

/** Prints the document, or what people read instead; fails if it cannot be written. */
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

export type Cell = string | number | Date | null;

/** Rows below their headings; none: the heading alone says so. */
export const table = (
  headings: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<Cell>>,
): string =>
  aligned([headings, ...rows.map((row) => row.map((cell) => short(oneLine(shown(cell)))))]);

/** Names with their values, which may have several lines. */
export const details = (pairs: ReadonlyArray<readonly [string, Cell]>): string => {
  const width = Math.max(...pairs.map(([name]) => CliOutput.displayWidth(name))) + 2;
  const indented = ([name, cell]: readonly [string, Cell]) =>
    padded(name, width) + printable(shown(cell)).replaceAll("\n", `\n${" ".repeat(width)}`);
  return pairs.map(indented).join("\n");
};

/** The text without what moves the cursor, rings or colours a terminal. */
export const printable = (text: string): string =>
  text.replace(/[\0-\x08\x0b-\x1f\x7f-\x9f]/g, "\ufffd");

const oneLine = (text: string) => printable(text.replace(/\s+/g, " "));

const shown = (cell: Cell): string =>
  cell === null ? "-" : cell instanceof Date ? cell.toISOString().slice(0, 19) + "Z" : `${cell}`;

const widest = 60;

const short = (text: string): string =>
  CliOutput.displayWidth(text) <= widest ? text : `${[...text].slice(0, widest - 1).join("")}…`;

const padded = (text: string, width: number) =>
  text + " ".repeat(Math.max(0, width - CliOutput.displayWidth(text)));

const aligned = (rows: ReadonlyArray<ReadonlyArray<string>>): string => {
  const widths = rows[0]!.map((_, column) =>
    Math.max(...rows.map((row) => CliOutput.displayWidth(row[column]!))),
  );
  return rows
    .map((row) =>
      row
        .map((cell, column) => padded(cell, widths[column]!))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
};
