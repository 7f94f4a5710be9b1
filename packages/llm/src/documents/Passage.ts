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
  let section: Array<Block> = [];
  let lines: Array<string> = [];
  let fence: string | undefined;

  const endBlock = () => {
    if (lines.length > 0) section.push(toBlock(lines, fence));
    lines = [];
  };
  const endSection = () => {
    endBlock();
    const headings = trail.map(({ heading }) => heading);
    for (const text of pack(section)) passages.push({ source, headings, text });
    section = [];
  };
  const startSection = (level: number, heading: string) => {
    endSection();
    trail = [...trail.filter((above) => above.level < level), { level, heading: plain(heading) }];
  };

  for (const line of encodeArchive(document.replace(frontMatter, ""))) {
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
      startSection(heading[1].length, heading[2] ?? "");
    } else if (underline !== undefined && lines.length === 1 && /^ {0,3}[^\s|>]/.test(lines[0]!)) {
      const [title] = lines.splice(0);
      startSection(underline.startsWith("=") ? 1 : 2, title!);
    } else if (line.trim() === "") {
      endBlock();
    } else {
      lines.push(line);
    }
  }
  endSection();
  return passages;
};

/** The passages of a plain text: its paragraphs, short neighbours together. */
export const passagesOfText = (source: string, document: string): Array<Passage> => {
  const paragraphs = encodeArchive(document)
    .join("\n")
    .split(/\n\s*\n/);
  const blocks = paragraphs.map((text) => ({ head: [], lines: text.split("\n"), tail: [] }));
  return pack(blocks).map((text) => ({ source, headings: [], text }));
};

const frontMatter = /^---[ \t]*\r?\n(?:[^]*?\r?\n)??(?:---|\.\.\.)[ \t]*(?:\r?\n|$)/;

const encodeArchive = (document: string): Array<string> => document.split(/\r\n|\r|\n/);

/** A paragraph, list, table or fenced code. When its lines are cut, every piece repeats head and tail. */
interface Block {
  readonly head: ReadonlyArray<string>;
  readonly lines: ReadonlyArray<string>;
  readonly tail: ReadonlyArray<string>;
}

const toBlock = (lines: ReadonlyArray<string>, fence: string | undefined): Block => {
  if (fence !== undefined) return { head: lines.slice(0, 1), lines: lines.slice(1), tail: [fence] };
  const isTable = lines.length > 2 && lines[0]!.includes("|") && /^[\s|:-]*$/.test(lines[1]!);
  const end = isTable ? 2 : 0;
  return { head: lines.slice(0, end), lines: lines.slice(end), tail: [] };
};

/** Texts of at most `maxLength` characters, as far as the blocks' heads and tails leave room. */
const pack = (blocks: ReadonlyArray<Block>): ReadonlyArray<string> =>
  joinNeighbours(blocks.flatMap(cutBlock), "\n\n", maxLength);

const cutBlock = ({ head, lines, tail }: Block): ReadonlyArray<string> => {
  const room = Math.max(maxLength / 2, maxLength - [...head, ...tail].join("\n").length - 2);
  const pieces = lines.flatMap((line) => cutLine(line, room));
  return joinNeighbours(pieces, "\n", room)
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
