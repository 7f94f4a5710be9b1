/**
 * Passages: pieces of a document, each short enough to be an answer.
 */

/** A piece of a document. */
export interface Passage {
  /** The document's path in the documents folder, separated by `/`, or its file name if it is outside the folder. */
  readonly source: string;
  /** The document's title: from its front matter, or else its first heading or its file's name. */
  readonly title: string;
  /** The headings above the passage, outermost first. */
  readonly headings: ReadonlyArray<string>;
  /** The fragment of the last heading's address, as GitHub and most generators of sites form it; `""` without heading. */
  readonly anchor: string;
  readonly text: string;
}

/** The maximum length of a passage, in characters. */
const maxLength = 1200;

/** Splits a Markdown document into passages. No passage spans two headings, and long sections are cut. */
export const passagesOf = (source: string, document: string): Array<Passage> => {
  const text = document.replace(/^\uFEFF/, "").replace(/\r\n?/g, "\n");
  const front =
    /^(---|\+\+\+)[ \t]*\n(?:[^]*?\n)??(?:\1|\.\.\.)[ \t]*(?:\n|$)/.exec(text)?.[0] ?? "";
  const passages: Array<Omit<Passage, "title">> = [];
  const anchors = new Map<string, number>();
  let title = /^title[ \t]*[:=][ \t]*(["']?)(.+?)\1[ \t]*$/m.exec(front)?.[2];
  let [above, anchor]: [ReadonlyArray<{ depth: number; heading: string }>, string] = [[], ""];
  let [blocks, lines]: [Array<string>, Array<string>] = [[], []];
  /** What ends the code, comment, script or style that the line belongs to. */
  let [fence, hidden] = ["", ""];
  const endBlock = () => {
    const block = lines.join("\n").trimEnd();
    const content = fenceOf(block) === undefined ? stripHtml(block) : block;
    if (content.trim() !== "") blocks.push(content);
    lines = [];
  };
  const endSection = () => {
    endBlock();
    const headings = above.map(({ heading }) => heading);
    for (const text of pack(blocks)) passages.push({ source, headings, anchor, text });
    blocks = [];
  };
  const startSection = (depth: number, markup: string) => {
    endSection();
    const line = markup.slice(0, 500).replace(/\s#+\s*$/, "");
    const id = /\{#([^{}\s]+)\}\s*$/.exec(line);
    const heading = plainOf(id === null ? line : line.slice(0, id.index));
    title ??= heading || undefined;
    const slug = id?.[1] ?? slugOf(heading);
    const count = anchors.get(slug) ?? 0;
    anchors.set(slug, count + 1);
    anchor = count === 0 ? slug : `${slug}-${count}`;
    above = [...above.filter((other) => other.depth < depth), { depth, heading }];
  };
  for (const line of text.slice(front.length).split("\n")) {
    const mark = fenceOf(line);
    const html = /^ {0,3}<(?:!(--)|(script|style)\b)/i.exec(line);
    const atx = /^ {0,3}(#{1,6})[ \t]+(.*)/.exec(line);
    const tag = /^\s*<h([1-6])\b[^>]*>(.*)<\/h\1>\s*$/i.exec(line);
    const underline = /^ {0,3}(?:(=+)|-{2,})[ \t]*$/.exec(line);
    if (fence !== "") {
      lines.push(line);
      if (mark?.startsWith(fence) && line.trim() === mark) [fence] = ["", endBlock()];
    } else if (hidden !== "" || html !== null) {
      hidden ||= html?.[1] === undefined ? `</${html![2]}>` : "-->";
      if (line.toLowerCase().includes(hidden.toLowerCase())) hidden = "";
    } else if (mark !== undefined) {
      endBlock();
      [fence, lines] = [mark, [line]];
    } else if (atx !== null) startSection(atx[1]!.length, atx[2]!);
    else if (tag !== null) startSection(Number(tag[1]), tag[2]!);
    else if (
      underline !== null &&
      lines.length === 1 &&
      !/^\s*(?:[-*+>|]|\d+[.)])/.test(lines[0]!)
    ) {
      const [markup] = lines.splice(0);
      startSection(underline[1] === undefined ? 2 : 1, markup!);
    } else if (line.trim() === "") endBlock();
    // Renderers fail at lists in lists without end.
    else lines.push(line.replace(/^(?:\s*(?:[-*+]|\d+[.)])\s+|\s*>\s?){9,}/, "- "));
  }
  endSection();
  title ??= source
    .replace(/^.*\//, "")
    .replace(/\.[^.]*$/, "")
    .replace(/[-_]+/g, " ");
  return passages.map((passage) => ({ ...passage, title: title! }));
};

/** Returns as many of the passage's first sentences as fit into `length` characters, skipping any code before them. */
export const firstSentences = (text: string, length: number): string => {
  const code = /^( {0,3}(`{3,}|~{3,}).*\n[^]*?\n {0,3}\2[ \t]*\n+)+/.exec(text)?.[0] ?? "";
  const [block = ""] = `\n${text.slice(code.length)}`.split(
    /\n(?=\s*(?:[-+*>|#]\s|\d+[.)]\s|\||`{3}|~{3}))|(?<=\S)\n\s*\n/,
  );
  const sentences = block
    .replace(/\s*\n\s*/g, " ")
    .trim()
    .split(endOfSentence);
  const whole = sentences.filter((sentence) => !/:\s*$/.test(sentence));
  const [start = ""] = (whole[0]?.length ?? 0) > length ? [] : join(whole, "", length);
  return start.trimEnd();
};

/** Returns the anchor that GitHub gives a heading. */
const slugOf = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{M}\p{N}\s_-]/gu, "")
    .replace(/\s/g, "-");

const fenceOf = (line: string) => /^ {0,3}(`{3,}|~{3,})/.exec(line)?.[1];

const htmlTag = /<(\/?)([a-z][a-z0-9.-]*)(?:(?=[^<>]*[=/])(?:\s[^<>]*)?)?>/gi;
const blockTag =
  /^(?:p|div|ul|ol|dl|d[dt]|table|tr|h\d|br|hr|details|summary|section|article|blockquote|pre)$/i;
/** Elements without attributes whose names also stand for something else, as in `<server>`, remain. */
const inlineTag =
  /^(?:a|b|i|u|s|p|em|strong|code|kbd|sub|sup|small|span|font|center|mark|t[dh]|thead|tbody|img|abbr|cite|del|ins)$/i;

/** Returns the text of a block without its HTML, apart from code. */
const stripHtml = (block: string): string =>
  !block.includes("<")
    ? block
    : block
        .replace(/(`+[^`]*`+)|<!--[^]*?-->/g, (_, code: string = "") => code.replaceAll("<", "\0"))
        .replace(htmlTag, (tag, close: string, name: string) => {
          if (/^li$/i.test(name)) return close === "" ? "\n- " : "";
          if (blockTag.test(name)) return "\n";
          if (/^t[dh]$/i.test(name)) return " ";
          return close !== "" || inlineTag.test(name) || tag.length > name.length + 2 ? "" : tag;
        })
        .replaceAll("\0", "<")
        .replace(/\n[^\S\n]*(?=\n)|^[^\S\n]*\n|\s+$/g, "");

/** Returns the text of a heading without its markup. */
const plainOf = (markup: string): string =>
  stripHtml(markup)
    .replace(/!?\[([^[\]]*)\](?:\([^)]*\)|\[[^\]]*\])/g, "$1")
    .replace(/`|\*\*?|\\(?=[^\p{L}\p{N}\s])|(?<![\p{L}\p{N}])__?|__?(?![\p{L}\p{N}])/gu, "")
    .trim();

/** Joins short blocks and cuts long ones. A short paragraph that ends with a colon stays with the next block. */
const pack = (blocks: ReadonlyArray<string>): Array<string> => {
  const pieces: Array<string> = [];
  let introduction = "";
  for (const [at, block] of blocks.entries()) {
    const [first = "", ...others] = cut(block, maxLength - introduction.length);
    const start = introduction + first;
    const isLast = at === blocks.length - 1;
    const isIntroduction =
      !isLast && others.length === 0 && first.endsWith(":") && start.length <= maxLength / 2;
    introduction = isIntroduction ? `${start}\n\n` : "";
    if (!isIntroduction) pieces.push(start, ...others);
  }
  return join(pieces, "\n\n", maxLength);
};

/** Cuts a block between sentences, table rows or lines of code. Each piece repeats the table header or code fences. */
const cut = (text: string, length: number): ReadonlyArray<string> => {
  if (text.length <= length) return [text];
  const isFenced = fenceOf(text) !== undefined;
  const isTable = /^.*\|.*\n[\s|:-]*-[\s|:-]*\n/.test(text);
  const pieces = text.split(isTable || isFenced ? /(?<=\n)/ : endOfSentence);
  const head = pieces.splice(0, isTable ? 2 : isFenced ? 1 : 0).join("");
  const tail = isFenced && pieces.length > 1 ? `\n${pieces.pop()}` : "";
  const room = Math.max(length / 2, length - head.length - tail.length);
  return join(pieces, "", room).map((piece) => head + piece.trimEnd() + tail);
};

const endOfSentence = /(?<=[.!?]\s|[。！？\n])/;

/** Joins neighbouring pieces as long as they fit into `room` characters, and cuts what is longer between words. */
const join = (pieces: ReadonlyArray<string>, separator: string, room: number): Array<string> => {
  const texts: Array<string> = [];
  for (const piece of pieces) {
    const last = texts.at(-1);
    if (last !== undefined && last.length + separator.length + piece.length <= room)
      texts[texts.length - 1] = last + separator + piece;
    else if (piece.length <= room) texts.push(piece);
    else
      texts.push(
        ...piece.match(
          new RegExp(`[^]{1,${Math.floor(room)}}(?!\\S)|[^]{1,${Math.floor(room)}}`, "g"),
        )!,
      );
  }
  return texts;
};
