/**
 * Passages: pieces of a document, each short enough to be an answer.
 */
import { Lexer, Parser, type Token } from "marked";

/** A piece of a document. */
export interface Passage {
  /** The document's path in the documents folder, separated by `/`, or its file name if it is outside the folder. */
  readonly source: string;
  /** The headings above the passage, outermost first. */
  readonly headings: ReadonlyArray<string>;
  /** Alternative phrases for the last heading, from the comments (`<!-- … · … -->`) below it. */
  readonly synonyms?: ReadonlyArray<string>;
  readonly text: string;
}

/** The maximum length of a passage, in characters. Only a single sentence, table row or line of code may be longer. */
const maxLength = 1200;

/** Splits a Markdown document into passages. No passage spans two headings, and long sections are cut. */
export const passagesOf = (source: string, document: string): Array<Passage> => {
  const passages: Array<Passage> = [];
  let above: ReadonlyArray<{ readonly depth: number; readonly title: string }> = [];
  let section: Array<Token> = [];
  let synonyms: Array<string> = [];
  const endSection = () => {
    const headings = above.map(({ title }) => title);
    const others = synonyms.length > 0 && { synonyms };
    for (const text of pack(section)) passages.push({ source, headings, ...others, text });
    section = [];
    synonyms = [];
  };
  const markdown = document.replace(/\r\n?/g, "\n").replace(frontMatter, "");
  // Inline Markdown is parsed only in headings, which halves the parsing time.
  for (const token of new Lexer().blockTokens(markdown)) {
    if (token.type === "heading") {
      endSection();
      const title = inline.parseInline(Lexer.lexInline(token.text), inline.textRenderer);
      above = [...above.filter(({ depth }) => depth < token.depth), { depth: token.depth, title }];
    } else if (token.type === "html" && token.raw.startsWith("<!--")) {
      synonyms.push(...token.raw.replace(/^<!--|-->\s*$/g, "").split("·"));
    } else if (token.type !== "space") {
      section.push(token);
    }
  }
  endSection();
  return passages;
};

/**
 * Returns as many of a passage's first sentences as fit into `length` characters, skipping any code before them.
 * Returns an empty string if the passage begins with a table, a list, or a sentence that is too long.
 */
export const firstSentences = (text: string, length: number): string => {
  const block = new Lexer()
    .blockTokens(text)
    .find(({ type }) => type !== "code" && type !== "space");
  if (block?.type !== "paragraph") return "";
  const line = block.raw.trimEnd().replaceAll("\n", " ");
  // A sentence that ends with a colon only introduces what follows, so it is left out.
  const sentences = line.split(endOfSentence).filter((sentence) => !sentence.endsWith(":"));
  const [start = ""] = join(sentences, "", length);
  return start.length <= length ? start.trimEnd() : "";
};

const frontMatter = /^---[ \t]*\n(?:[^]*?\n)??(?:---|\.\.\.)[ \t]*(?:\n|$)/;

const inline = new Parser();

/** Joins short blocks and cuts long ones. A short paragraph that ends with a colon stays with the next block. */
const pack = (blocks: ReadonlyArray<Token>): Array<string> => {
  const pieces: Array<string> = [];
  let introduction = "";
  for (const block of blocks) {
    const [first, ...others] = cut(block, maxLength - introduction.length);
    const start = introduction + first;
    const isIntroduction =
      block.type === "paragraph" &&
      others.length === 0 &&
      start.endsWith(":") &&
      start.length <= maxLength / 2;
    introduction = isIntroduction ? `${start}\n\n` : "";
    if (!isIntroduction) pieces.push(start, ...others);
  }
  if (introduction !== "") pieces.push(introduction.trimEnd());
  return join(pieces, "\n\n", maxLength);
};

/** Cuts a block between sentences, table rows or lines of code. Each piece repeats the table header or code fences. */
const cut = ({ raw, type }: Token, length: number): ReadonlyArray<string> => {
  const text = raw.trimEnd();
  if (text.length <= length) return [text];
  const isFenced = type === "code" && /^ *[`~]/.test(text);
  const pieces = text.split(type === "table" || isFenced ? endOfLine : endOfSentence);
  const head = pieces.splice(0, type === "table" ? 2 : isFenced ? 1 : 0).join("");
  const tail = isFenced ? `\n${pieces.pop()}` : "";
  // A table without rows, or code without lines.
  if (pieces.length === 0) return [text];
  const room = length - head.length - tail.length;
  return join(pieces, "", room).map((piece) => head + piece.trimEnd() + tail);
};

const endOfLine = /(?<=\n)/;
const endOfSentence = /(?<=[.!?]\s|[。！？\n])/;

/** Joins neighbouring pieces as long as they fit into `room` characters. */
const join = (pieces: ReadonlyArray<string>, separator: string, room: number): Array<string> => {
  const texts: Array<string> = [];
  for (const piece of pieces) {
    const last = texts.at(-1);
    const text = last === undefined ? piece : last + separator + piece;
    if (last === undefined || text.length > room) texts.push(piece);
    else texts[texts.length - 1] = text;
  }
  return texts;
};
