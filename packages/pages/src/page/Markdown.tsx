/**
 * Renders Markdown as elements. Raw HTML except `<br>` appears as text, and nothing is loaded: the page never parses
 * HTML from an answer.
 */
import { Lexer, Tokenizer, type MarkedToken, type Token } from "marked";
import { h, isValidElement, type ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { color } from "./color.ts";
import { CopyButton } from "./Parts.tsx";
import { translate } from "./words.ts";

/** Returns the address for a link that is neither `http(s):` nor `mailto:`; `undefined` if the link stays text. */
type ToAddress = ((href: string) => string | undefined) | undefined;

interface MarkdownProps {
  readonly text: string;
  readonly toAddress?: ToAddress;
}

/** When the text grows, only its last block is parsed and rendered again. */
export const Markdown = ({ text, toAddress }: MarkdownProps) => {
  const [read] = useState(() => makeReader(toAddress));
  return <div class="stack markdown">{read(text)}</div>;
};

const makeReader = (toAddress: ToAddress) => {
  let before = "";
  let finalBlocks: Array<ComponentChildren> = [];
  /** The offset at which the blocks that may still change begin. */
  let at = 0;
  let links: Lexer["tokens"]["links"] = {};
  let isPlain = false;
  const readBlocks = (text: string): ReadonlyArray<ComponentChildren> => {
    const lexer = new Lexer({ gfm: true, tokenizer: new BoundedTokenizer() });
    lexer.tokens.links = links;
    const tokens = lexer.lex(text.slice(at));
    if (at > 0 && tokens.some(({ type }) => type === "def")) {
      // Earlier blocks may refer to the definition.
      [finalBlocks, at] = [[], 0];
      return readBlocks(text);
    }
    const last = tokens.findLastIndex(({ type }) => type !== "space");
    const elements = tokens.map((token) => renderBlock(token, toAddress));
    let count = 0;
    for (; count < last && text.startsWith(tokens[count]!.raw, at); count++) {
      at += tokens[count]!.raw.length;
      finalBlocks.push(elements[count]);
    }
    return [...finalBlocks, ...elements.slice(count)];
  };
  return (source: string): ComponentChildren => {
    const text = source.replaceAll(/\r\n?/g, "\n");
    if (!text.startsWith(before)) [finalBlocks, at, links, isPlain] = [[], 0, {}, false];
    before = text;
    try {
      isPlain ||= isTangled(text.slice(at));
      const blocks = isPlain ? [] : readBlocks(text);
      // Link definitions on their own would show nothing.
      if (blocks.some(Boolean)) return blocks;
    } catch {
      // The text is nested too deeply.
      isPlain = true;
    }
    // The text is split, because browsers take seconds to render a paragraph with thousands of open brackets.
    return source.match(/[^]{1,4000}/g)?.map((piece) => <p class="raw">{piece}</p>);
  };
};

/** Twenty nested quotations or lists on one line, which would overflow the lexer's stack or occupy it for minutes. */
const deepNesting = /^[ \t]*(?:(?:>|(?:[-*+]|\d{1,9}[.)])[ \t])[ \t]*){20}/m;
const maxDepth = 20;
/** About 0.3 s of work: each emphasis or code mark takes time in proportion to the length of its paragraph. */
const maxWork = 1e9;
/** Browsers take seconds to draw thousands of accents on one letter. */
const manyAccents = /\p{M}{1000}/u;
const footnoteOrBlankLine = /\n(?:\[\^[^\]\n]+\]:|[ \t]*\n)/;
/** The lexer copies the rest of the text for each. */
const maxFootnotes = 300;
/** At each character of a word before an `@`, the lexer looks for an email address. */
const longWord = /@(?<=[!-~]{1000}@)/;

/** Whether the text would overflow the lexer's stack, or take the lexer or the browser too long. */
const isTangled = (text: string): boolean =>
  deepNesting.test(text) ||
  manyAccents.test(text) ||
  longWord.test(text) ||
  text.split("\n[^").length > maxFootnotes ||
  text.split(/[([{]/).length - text.split(/[)\]}]/).length > 2000 ||
  text.split(/\n[ \t]*\n/).some((block) => {
    const isTable = /^.*\n[ \t|:]*-[ \t|:-]*\n/.test(block);
    const pieces = isTable ? block.split("\n") : [block];
    return pieces.some((piece) => piece.length * piece.split(/[*_`]/).length > maxWork);
  });

/** A tokenizer that throws if lists and quotations are nested so deeply that the stack could overflow. */
class BoundedTokenizer extends Tokenizer {
  #depth = 0;
  #nest<A>(read: () => A): A {
    if (++this.#depth > maxDepth) throw new RangeError("nested too deeply");
    const token = read();
    this.#depth--;
    return token;
  }
  override blockquote(source: string) {
    return this.#nest(() => super.blockquote(source));
  }
  override list(source: string) {
    return this.#nest(() => super.list(source));
  }
  // A footnote would disappear as the definition of a link.
  override def(source: string) {
    return /^ {0,3}\[\^/.test(source) ? undefined : super.def(source);
  }
  // Footnotes below each other are a paragraph each.
  override paragraph(source: string) {
    const end = source.search(footnoteOrBlankLine);
    const isFootnote = end >= 0 && source.startsWith("[^", end + 1);
    return super.paragraph(isFootnote ? source.slice(0, end + 1) : source);
  }
  // Marks in a formula are not emphasis, and its backslashes stay.
  override escape(source: string) {
    const raw = formula.exec(source)?.[0];
    return raw === undefined ? super.escape(source) : { type: "escape" as const, raw, text: raw };
  }
  // Text ends before a `$`, where a formula may begin.
  override inlineText(source: string) {
    const end = source.indexOf("$", 1);
    return super.inlineText(end < 0 ? source : source.slice(0, end));
  }
}

/** A formula of TeX. Its length is limited, because the lexer looks for one at each backslash. */
const formula =
  /^(?:\$\$[^$]+\$\$|\$(?![\s$])[^$\n]*[^\s$\\]\$(?!\d)|\\\([^\n]{1,1000}?\\\)|\\\[[^]{1,1000}?\\\])/;

/** Returns what a screen reader says in place of Markdown: the text of the elements, without raw HTML. */
export const toSpeech = (text: string): string => {
  const speak = (node: ComponentChildren): string => {
    if (Array.isArray(node)) return node.map(speak).join("");
    if (!isValidElement(node)) return typeof node === "string" ? node : "";
    const props: { children?: ComponentChildren; class?: string; text?: string } = node.props;
    if (node.type === "span" && props.class === "raw") return " ";
    const words = speak(props.text ?? props.children);
    if (/^(a|code|del|em|span|strong)$/.test(String(node.type))) return words;
    return /^t[dh]$/.test(String(node.type)) ? `${words}, ` : `\n${words}\n`;
  };
  return speak(makeReader(undefined)(text)).replace(/,? *\n+/g, "\n");
};

/** The elements for tokens that are rendered with nothing but their content. */
const elements = {
  blockquote: "blockquote",
  br: "br",
  del: "del",
  em: "em",
  hr: "hr",
  list_item: "li",
  paragraph: "p",
  strong: "strong",
} as const;

/**
 * Gives a block the direction of its own text. The attribute is set last, because otherwise Chromium searches all
 * of the block's text for a letter each time an element is added.
 */
const setDirection = (block: HTMLElement | null): void => {
  if (block) block.dir = "auto";
};

/** Renders a block in the direction of its own text. The style sheet does the same for the blocks inside it. */
const renderBlock = (block: Token, toAddress: ToAddress): ComponentChildren => {
  const all = (tokens: ReadonlyArray<Token> = []) =>
    tokens.map((token) => render(token as MarkedToken));
  let isInLink = false;
  const link = (href: string, children: ComponentChildren) => {
    // Other links, such as `javascript:` links, stay text unless `toAddress` returns an address.
    const address = /^(https?:\/\/|mailto:)/i.test(href) ? href : toAddress?.(href);
    const props = { target: "_blank", rel: "noopener noreferrer nofollow" };
    return address === undefined ? children : h("a", { href: address, ...props }, children);
  };
  const render = (
    token: MarkedToken,
    props: { ref?: typeof setDirection } = {},
  ): ComponentChildren => {
    switch (token.type) {
      case "code":
        return <Code language={/^[\w+#.-]+/.exec(token.lang ?? "")?.[0]} text={token.text} />;
      case "codespan":
        return <code>{token.text}</code>;
      case "heading":
        // All headings get the same level, so that the page's outline has no gaps.
        return h("h3", { class: `depth-${token.depth}`, ...props }, all(token.tokens));
      case "list": {
        const tag = token.ordered ? "ol" : "ul";
        return h(tag, { ...props, start: token.start || undefined }, all(token.items));
      }
      case "checkbox":
        return token.checked ? "☑ " : "☐ ";
      case "table": {
        const [head, ...rows] = [token.header, ...token.rows].map((row) => {
          const cells = row.map(({ align, header, tokens }) =>
            h(header ? "th" : "td", { style: { textAlign: align ?? "" } }, all(tokens)),
          );
          return <tr>{cells}</tr>;
        });
        return (
          <div class="box" role="group" aria-label={translate("Table")} tabIndex={0} {...props}>
            <table>
              <thead>{head}</thead>
              <tbody>{rows}</tbody>
            </table>
          </div>
        );
      }
      case "link": {
        isInLink = true;
        const children = all(token.tokens);
        isInLink = false;
        return link(decodeEntities(token.href), children);
      }
      case "image": {
        const name = decodeEntities(`🖼 ${token.text || token.href}`);
        return isInLink ? name : link(decodeEntities(token.href), name);
      }
      case "text":
        return token.tokens === undefined ? decodeEntities(token.text) : all(token.tokens);
      case "escape":
        return token.text;
      case "html":
        // Markdown tables have no other way to break a line.
        if (/^<br *\/?>$/i.test(token.raw.trim())) return <br />;
        return h(props.ref ? "p" : "span", { class: "raw", ...props }, token.raw);
      case "space":
      case "def":
        return null;
      default:
        return h(elements[token.type], props, "tokens" in token && all(token.tokens));
    }
  };
  return render(block as MarkedToken, { ref: setDirection });
};

/** A code block with the name of its language and a copy button. */
export const Code = ({
  language = "text",
  text,
}: {
  readonly language?: string | undefined;
  readonly text: string;
}) => {
  const code = useRef<HTMLElement>(null);
  useEffect(() => color(code.current!, language), [language, text]);
  return (
    <div class="code" dir="ltr">
      <div class="row quiet">
        <span>{language}</span>
        <CopyButton text={text} name={translate("Copy code")} />
      </div>
      <pre tabIndex={0}>
        <code ref={code}>{text}</code>
      </pre>
    </div>
  );
};

const entities: ReadonlyMap<string, string> = new Map([
  ..."amp& apos' bdquo„ bull• check✓ euro€ ge≥ gt> hellip… larr← ldquo“ le≤ lsquo‘ lt< mdash— minus− ndash– ne≠ quot\" rarr→ rdquo” rsquo’ sbquo‚ trade™"
    .split(" ")
    .map((pair) => [pair.slice(0, -1), pair.slice(-1)] as const),
  // The characters from 160 to 255.
  ...`nbsp iexcl cent pound curren yen brvbar sect uml copy ordf laquo not shy reg macr deg plusmn sup2 sup3 acute micro
  para middot cedil sup1 ordm raquo frac14 frac12 frac34 iquest Agrave Aacute Acirc Atilde Auml Aring AElig Ccedil Egrave
  Eacute Ecirc Euml Igrave Iacute Icirc Iuml ETH Ntilde Ograve Oacute Ocirc Otilde Ouml times Oslash Ugrave Uacute Ucirc
  Uuml Yacute THORN szlig agrave aacute acirc atilde auml aring aelig ccedil egrave eacute ecirc euml igrave iacute icirc
  iuml eth ntilde ograve oacute ocirc otilde ouml divide oslash ugrave uacute ucirc uuml yacute thorn yuml`
    .split(/\s+/)
    .map((name, at) => [name, String.fromCharCode(160 + at)] as const),
]);

const decodeEntities = (text: string): string =>
  text.replace(/&(?:#(\d{1,7}|x[\da-f]{1,6})|(\w+));/gi, (whole, number, name) => {
    if (number === undefined) return entities.get(name) ?? whole;
    const code = Number(number.replace(/^x/i, "0x"));
    return code > 0 && code <= 0x10ffff ? String.fromCodePoint(code) : whole;
  });
