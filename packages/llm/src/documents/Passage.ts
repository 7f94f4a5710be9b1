/**
 * Passages: pieces of a document, each short enough to be an answer.
 */

/** A piece of a document. */
export interface Passage {
  /** The document's path in the folder, with `/` as the separator. */
  readonly source: string;
  /** The headings above the passage, outermost first; empty in plain text. */
  readonly headings: ReadonlyArray<string>;
  readonly text: string;
}

/** The most characters of a passage; the repeated head and tail of a cut block may exceed it. */
const maxLength = 1200;

/** The passages of a Markdown document. Each belongs to one heading; long sections and blocks are cut. */
export const passagesOfMarkdown = (source: string, document: string): Array<Passage> => {
  const passages: Array<Passage> = [];
  let trail: ReadonlyArray<{ readonly level: number; readonly heading: string }> = [];
  /** The paragraphs, lists, tables and fenced code of the section so far, and the lines of the last one. */
  let blocks: Array<string> = [];
  let lines: Array<string> = [];
  let fence: string | undefined;

  const endBlock = () => {
    if (lines.length > 0) blocks.push(lines.join("\n"));
    lines = [];
  };
  const endSection = () => {
    endBlock();
    const headings = trail.map(({ heading }) => heading);
    for (const text of pack(blocks)) passages.push({ source, headings, text });
    blocks = [];
  };
  const startSection = (level: number, heading: string) => {
    endSection();
    trail = [...trail.filter((above) => above.level < level), { level, heading: plain(heading) }];
  };

  for (const line of splitLines(document.replace(frontMatter, ""))) {
    const mark = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/.exec(line);
    if (fence !== undefined) {
      lines.push(line);
      if (mark?.[1]?.startsWith(fence) && mark[2]?.trim() === "") {
        endBlock();
        fence = undefined;
      }
      continue;
    }
    const heading = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/.exec(line);
    const underline = /^ {0,3}(=+|-+)[ \t]*$/.exec(line)?.[1];
    if (heading?.[1] !== undefined) {
      startSection(heading[1].length, heading[2] ?? "");
    } else if (underline !== undefined && lines.length === 1 && /^ {0,3}[^\s|>]/.test(lines[0]!)) {
      const [title] = lines.splice(0);
      startSection(underline.startsWith("=") ? 1 : 2, title!);
    } else {
      fence = mark?.[1];
      if (fence !== undefined || line.trim() === "") endBlock();
      if (line.trim() !== "") lines.push(line);
    }
  }
  if (fence !== undefined) lines.push(fence);
  endSection();
  return passages;
};

/** The passages of a plain text: its paragraphs, short neighbours together. */
export const passagesOfText = (source: string, document: string): Array<Passage> =>
  pack(
    splitLines(document)
      .join("\n")
      .split(/\n\s*\n/),
  ).map((text) => ({ source, headings: [], text }));

const frontMatter = /^---[ \t]*\r?\n(?:[^]*?\r?\n)??(?:---|\.\.\.)[ \t]*(?:\r?\n|$)/;

const splitLines = (document: string): Array<string> => document.split(/\r\n|\r|\n/);

/** Texts of at most `maxLength` characters, as far as the heads and tails of cut blocks leave room. */
const pack = (blocks: ReadonlyArray<string>): ReadonlyArray<string> =>
  joinNeighbours(blocks.flatMap(cutBlock), "\n\n", maxLength);

/** Each piece of a table repeats its head, each piece of fenced code its fences. */
const cutBlock = (block: string): ReadonlyArray<string> => {
  const lines = block.split("\n");
  const fence = /^ {0,3}(?:`{3,}|~{3,})/.test(block) ? 1 : 0;
  const isTable = lines.length > 2 && lines[0]!.includes("|") && /^[\s|:-]*$/.test(lines[1]!);
  const head = lines.splice(0, isTable ? 2 : fence);
  const tail = lines.splice(lines.length - fence);
  const room = Math.max(maxLength / 2, maxLength - [...head, ...tail].join("\n").length - 2);
  return joinNeighbours(
    lines.flatMap((line) => cutLine(line, room)),
    "\n",
    room,
  )
    .map((piece) => [...head, piece, ...tail].join("\n").trimEnd())
    .filter((text) => text.trim() !== "");
};

const joinNeighbours = (
  pieces: ReadonlyArray<string>,
  separator: string,
  room: number,
): Array<string> => {
  const texts: Array<string> = [];
  for (const piece of pieces) {
    const text = texts.length === 0 ? piece : texts.at(-1) + separator + piece;
    if (texts.length === 0 || text.length > room) texts.push(piece);
    else texts[texts.length - 1] = text;
  }
  return texts;
};

/** Cuts after sentences, else between words, else between code points. */
const cutLine = (line: string, room: number): ReadonlyArray<string> => {
  if (line.length <= room) return [line];
  const [half, whole] = [Math.floor(room / 2), Math.floor(room)];
  const piece = new RegExp(
    `.{${half},${whole}}(?<=[.!?。！？])(?=\\s|$)|.{1,${whole}}(?=\\s|$)|.{1,${whole}}`,
    "gu",
  );
  return (line.match(piece) ?? []).map((text) => text.trimStart());
};

/** The heading's first 300 characters, without closing marks, emphasis, code marks and link addresses. */
const plain = (heading: string): string =>
  heading
    .slice(0, 300)
    .trim()
    .replace(/(?:^|[ \t])#+$/, "")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/\*\*|__|`/g, "")
    .trim();
