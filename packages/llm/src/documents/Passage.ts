/**
 * Pieces of a document, small enough to be an answer.
 */

export interface Passage {
  /** Where its document lies in the folder, with `/` between the names. */
  readonly source: string;
  /** The headings above it, outermost first; empty in plain text. */
  readonly headings: ReadonlyArray<string>;
  readonly text: string;
}

/** About how many characters a passage may have; what repeats in each piece of a block comes on top. */
const size = 1200;

/**
 * The passages of a Markdown document. Each lies under one heading; sections longer than 1200
 * characters are cut between paragraphs, longer paragraphs between lines, then between words.
 * A cut table or fenced code keeps its head and its fence in every piece.
 */
export const passagesOfMarkdown = (source: string, document: string): Array<Passage> => {
  const passages: Array<Passage> = [];
  let trail: ReadonlyArray<{ readonly level: number; readonly heading: string }> = [];
  let section: Array<Block> = [];
  let lines: Array<string> = [];
  let fence: string | undefined;

  const endBlock = () => {
    if (lines.length > 0) section.push(fence === undefined ? blockOf(lines) : codeOf(lines, fence));
    lines = [];
  };
  const endSection = () => {
    endBlock();
    const headings = trail.map(({ heading }) => heading);
    for (const text of pack(section)) passages.push({ source, headings, text });
    section = [];
  };
  const open = (level: number, heading: string) => {
    endSection();
    trail = [...trail.filter((above) => above.level < level), { level, heading: plain(heading) }];
  };

  for (const line of linesOf(withoutFrontMatter(document))) {
    const mark = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/.exec(line);
    if (fence !== undefined) {
      if (mark?.[1]?.startsWith(fence) && mark[2]?.trim() === "") {
        endBlock();
        fence = undefined;
      } else lines.push(line);
      continue;
    }
    const heading = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/.exec(line);
    const underline = /^ {0,3}(=+|-+)[ \t]*$/.exec(line)?.[1];
    if (mark?.[1] !== undefined) {
      endBlock();
      fence = mark[1];
      lines.push(line);
    } else if (heading?.[1] !== undefined) {
      open(heading[1].length, heading[2] ?? "");
    } else if (underline !== undefined && lines.length === 1 && /^ {0,3}[^\s|>]/.test(lines[0]!)) {
      const [title] = lines.splice(0);
      open(underline.startsWith("=") ? 1 : 2, title!);
    } else if (line.trim() === "") {
      endBlock();
    } else {
      lines.push(line);
    }
  }
  endSection();
  return passages;
};

/** The passages of a plain text: paragraphs, the short ones together. */
export const passagesOfText = (source: string, document: string): Array<Passage> =>
  pack(
    linesOf(document)
      .join("\n")
      .split(/\n\s*\n/)
      .map((paragraph) => ({ head: [], lines: paragraph.split("\n"), tail: [] })),
  ).map((text) => ({ source, headings: [], text }));

/** Lines that belong together, and what each piece of them repeats when they are cut. */
interface Block {
  readonly head: ReadonlyArray<string>;
  readonly lines: ReadonlyArray<string>;
  readonly tail: ReadonlyArray<string>;
}

const blockOf = (lines: ReadonlyArray<string>): Block => {
  const isTable = lines.length > 2 && lines[0]!.includes("|") && /^[\s|:-]*$/.test(lines[1]!);
  const end = isTable ? 2 : 0;
  return { head: lines.slice(0, end), lines: lines.slice(end), tail: [] };
};

const codeOf = ([head, ...lines]: ReadonlyArray<string>, fence: string): Block => ({
  head: [head!],
  lines,
  tail: [fence],
});

/** Blocks put together to texts of at most `size` characters, as far as their frames allow. */
const pack = (blocks: ReadonlyArray<Block>): ReadonlyArray<string> =>
  joined(blocks.flatMap(cut), "\n\n", size);

const cut = ({ head, lines, tail }: Block): ReadonlyArray<string> => {
  const room = Math.max(size / 2, size - [...head, ...tail].join("\n").length - 2);
  return joined(
    lines.flatMap((line) => cutLine(line, room)),
    "\n",
    room,
  )
    .map((piece) => [...head, piece, ...tail].join("\n").trimEnd())
    .filter((text) => text.trim() !== "");
};

/** Joins neighbours as long as they have room together. */
const joined = (pieces: ReadonlyArray<string>, between: string, room: number): Array<string> => {
  const texts: Array<string> = [];
  for (const piece of pieces) {
    const last = texts.at(-1);
    if (last === undefined || last.length + between.length + piece.length > room) texts.push(piece);
    else texts[texts.length - 1] = last + between + piece;
  }
  return texts;
};

/** Cuts after a sentence, else between words, else anywhere but within a code point. */
const cutLine = (line: string, room: number): ReadonlyArray<string> => {
  if (line.length <= room) return [line];
  const [half, whole] = [Math.floor(room / 2), Math.floor(room)];
  const piece = new RegExp(
    `.{${half},${whole}}(?<=[.!?。！？])(?=\\s|$)|.{1,${whole}}(?=\\s|$)|.{1,${whole}}`,
    "gu",
  );
  return (line.match(piece) ?? []).map((text) => text.trimStart());
};

const linesOf = (document: string): Array<string> => document.split(/\r\n|\r|\n/);

const withoutFrontMatter = (document: string): string =>
  document.replace(/^---[ \t]*\r?\n(?:[^]*?\r?\n)??(?:---|\.\.\.)[ \t]*(?:\r?\n|$)/, "");

/** A heading without closing marks, emphasis, code marks and link addresses; its start, if it is endless. */
const plain = (heading: string): string =>
  heading
    .slice(0, 300)
    .trim()
    .replace(/(?:^|[ \t])#+$/, "")
    .replace(/!?\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/\*\*|__|`/g, "")
    .trim();
