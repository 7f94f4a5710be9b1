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
  let trail: Array<{ readonly level: number; readonly heading: string }> = [];
  let section: Array<Block> = [];
  let lines: Array<string> = [];
  let fence: string | undefined;

  const endBlock = () => {
    if (lines.length > 0) section.push(fence === undefined ? blockOf(lines) : codeOf(lines));
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
    trail = [...trail.filter((above) => above.level < level), { level, heading }];
  };

  for (const line of linesOf(withoutFrontMatter(document))) {
    const mark = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})(.*)$/.exec(line);
    if (fence !== undefined) {
      lines.push(line);
      if (mark?.[1]?.startsWith(fence) && mark[2]?.trim() === "") {
        endBlock();
        fence = undefined;
      }
      continue;
    }
    if (mark?.[1] !== undefined) {
      endBlock();
      fence = mark[1];
      lines.push(line);
      continue;
    }
    const heading = /^ {0,3}(#{1,6})(?:[ \t](.*))?$/.exec(line);
    const underline = /^ {0,3}(=+|-+)[ \t]*$/.exec(line)?.[1];
    if (heading?.[1] !== undefined) {
      open(heading[1].length, plain(heading[2] ?? ""));
    } else if (underline !== undefined && lines.length === 1 && /^ {0,3}[^\s|>]/.test(lines[0]!)) {
      const text = plain(lines[0]!);
      lines = [];
      open(underline.startsWith("=") ? 1 : 2, text);
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

const blockOf = (lines: ReadonlyArray<string>): Block =>
  lines.length > 2 && lines[0]!.includes("|") && /^[\s|:-]*$/.test(lines[1]!)
    ? { head: lines.slice(0, 2), lines: lines.slice(2), tail: [] }
    : { head: [], lines, tail: [] };

const codeOf = (lines: ReadonlyArray<string>): Block => {
  const closed = lines.length > 1 && /^ {0,3}(`{3,}|~{3,})\s*$/.test(lines.at(-1)!);
  const fence = /`{3,}|~{3,}/.exec(lines[0]!)![0];
  return {
    head: lines.slice(0, 1),
    lines: lines.slice(1, closed ? -1 : undefined),
    tail: [closed ? lines.at(-1)! : fence],
  };
};

/** Blocks put together to texts of at most `size` characters, as far as their frames allow. */
const pack = (blocks: ReadonlyArray<Block>): Array<string> => {
  const texts: Array<string> = [];
  for (const piece of blocks.flatMap(cut)) {
    const last = texts.at(-1);
    if (last !== undefined && last.length + 2 + piece.length <= size) {
      texts[texts.length - 1] = `${last}\n\n${piece}`;
    } else {
      texts.push(piece);
    }
  }
  return texts;
};

const cut = ({ head, lines, tail }: Block): Array<string> => {
  const room = Math.max(size / 2, size - [...head, ...tail].join("\n").length - 2);
  const groups: Array<string> = [];
  for (const line of lines.flatMap((whole) => cutLine(whole, room))) {
    const last = groups.at(-1);
    if (last !== undefined && last.length + 1 + line.length <= room) {
      groups[groups.length - 1] = `${last}\n${line}`;
    } else {
      groups.push(line);
    }
  }
  return groups
    .map((group) => [...head, group, ...tail].join("\n").trimEnd())
    .filter((text) => text.trim() !== "");
};

/** Cuts after a sentence, else between words, else anywhere but within a surrogate pair. */
const cutLine = (line: string, room: number): Array<string> => {
  const pieces: Array<string> = [];
  let rest = line;
  while (rest.length > room) {
    const start = rest.slice(0, room);
    const sentence = /^[^]*[.!?。！？](?=\s)/.exec(start)?.[0].length ?? 0;
    const word = start.lastIndexOf(" ");
    const at =
      sentence > room / 2
        ? sentence
        : word > 0
          ? word
          : /[\ud800-\udbff]$/.test(start)
            ? room - 1
            : room;
    pieces.push(rest.slice(0, at));
    rest = rest.slice(at).trimStart();
  }
  return [...pieces, rest];
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
