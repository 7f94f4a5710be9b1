/**
 * The fenced code blocks in this project's documentation.
 */
import { globSync, readFileSync } from "node:fs";
import { join } from "node:path";

export const root = join(import.meta.dirname, "../..");

export const read = (file: string): string => readFileSync(join(root, file), "utf8");

/** The documents in the root and in docs, and the packages' READMEs. */
export const documents: ReadonlyArray<string> = globSync(
  ["*.md", "docs/**/*.md", "{apps,packages}/*/README.md"],
  { cwd: root },
);

export interface Fence {
  /** The info string: the language, and what follows it on the opening line. */
  readonly info: string;
  readonly text: string;
}

export const fencesOf = (markdown: string): ReadonlyArray<Fence> =>
  [...markdown.matchAll(/^(`{3,})([^`\n]*)\n([^]*?)\n\1$/gm)].map((match) => ({
    info: match[2]!,
    text: match[3]!,
  }));

/** The text under a heading, up to the next heading of the same level. */
export const sectionOf = (markdown: string, heading: string): string => {
  const level = /^#+ /.exec(heading)![0];
  const start = markdown.indexOf(`\n${heading}\n`);
  if (start === -1) throw new Error(`There is no section ${heading}`);
  const end = markdown.indexOf(`\n${level}`, start + 1);
  return markdown.slice(start, end === -1 ? undefined : end);
};

/** A table as the formatter writes it, with every cell as wide as its column. */
export const table = (
  head: ReadonlyArray<string>,
  rows: ReadonlyArray<ReadonlyArray<string>>,
): string => {
  const widths = head.map((name, at) =>
    Math.max(name.length, ...rows.map((row) => row[at]!.length)),
  );
  const line = (cells: ReadonlyArray<string>) =>
    `| ${cells.map((cell, at) => cell.padEnd(widths[at]!)).join(" | ")} |`;
  return [line(head), line(widths.map((width) => "-".repeat(width))), ...rows.map(line)].join("\n");
};
