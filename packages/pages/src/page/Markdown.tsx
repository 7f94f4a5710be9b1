/**
 * Markdown as elements. Raw HTML is shown as the text that it is, and nothing is loaded: the page never parses HTML of
 * an answer.
 */
import { Lexer, Tokenizer, type MarkedToken, type Token } from "marked";
import { h, type ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { CopyButton } from "./Parts.tsx";

/** The address of a link that is neither on the web nor mail; `undefined`: it stays text. */
export type ToAddress = (href: string) => string | undefined;

export interface MarkdownProps {
  readonly text: string;
  readonly toAddress?: ToAddress | undefined;
}

/** An answer. One that grows costs its last block each time, not all of it. */
export const Markdown = ({ text, toAddress = () => undefined }: MarkdownProps) => {
  const [read] = useState(() => makeBlocks(toAddress));
  return <div class="stack markdown">{read(text)}</div>;
};

/** Reads a text that grows. */
const makeBlocks = (toAddress: ToAddress): ((text: string) => ComponentChildren) => {
  let before = "";
  let settled: Array<ComponentChildren> = [];
  /** Where the blocks that may still change begin. */
  let at = 0;
  let links: Lexer["tokens"]["links"] = {};
  let isPlain = false;
  const restart = () => {
    settled = [];
    at = 0;
  };
  const read = (text: string): ComponentChildren => {
    const lexer = new Lexer({ gfm: true, tokenizer: new BoundedTokenizer() });
    lexer.tokens.links = links;
    const tokens = lexer.lex(text.slice(at));
    if (at > 0 && tokens.some(({ type }) => type === "def")) {
      // Earlier blocks may refer to it.
      restart();
      return read(text);
    }
    const last = tokens.findLastIndex(({ type }) => type !== "space");
    const open = tokens.findIndex(({ raw }, index) => {
      if (index >= last || !text.startsWith(raw, at)) return true;
      at += raw.length;
      return false;
    });
    const elements = tokens.map((token) => renderBlock(token, toAddress));
    settled.push(...elements.splice(0, Math.max(0, open)));
    return [...settled, ...elements];
  };
  return (source) => {
    const text = source.replaceAll(/\r\n?/g, "\n");
    if (!text.startsWith(before)) {
      restart();
      links = {};
      isPlain = false;
    }
    before = text;
    try {
      if (!isPlain && !isTangled(text.slice(at))) return read(text);
    } catch {
      // Nested too deeply.
    }
    isPlain = true;
    // In pieces: browsers take seconds for a paragraph of thousands of open brackets.
    return source.match(/[^]{1,4000}/g)?.map((piece) => <p class="plain">{piece}</p>);
  };
};

/** Forty quotations or lists in one line, which would overflow the stack of the lexer, or take it minutes. */
const nested = /^[ \t]*(?:(?:>|(?:[-*+]|\d{1,9}[.)])[ \t])[ \t]*){40}/m;
const maxDepth = 40;
/** Some 0.3 s: marks of emphasis take time by the length of their paragraph. */
const maxWork = 1e9;

/** Whether the lexer would overflow the stack, or it or the browser take seconds. */
const isTangled = (text: string): boolean =>
  nested.test(text) ||
  text.split(/[([{]/).length - text.split(/[)\]}]/).length > 2000 ||
  text.split(/\n[ \t]*\n/).some((block) => {
    const isTable = /^.*\n[ \t|:]*-[ \t|:-]*\n/.test(block);
    const pieces = isTable ? block.split("\n") : [block];
    return pieces.some((piece) => piece.length * piece.split(/[*_]/).length > maxWork);
  });

/** Throws where lists and quotations are nested so deeply that the stack could overflow. */
class BoundedTokenizer extends Tokenizer {
  #depth = 0;
  readonly #nested = <A,>(read: () => A): A => {
    if (++this.#depth > maxDepth) throw new RangeError("nested too deeply");
    const token = read();
    this.#depth--;
    return token;
  };
  override blockquote(source: string) {
    return this.#nested(() => super.blockquote(source));
  }
  override list(source: string) {
    return this.#nested(() => super.list(source));
  }
}

/** The elements of tokens that have nothing but their content. */
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

/** Each block of an answer has the direction of its text. The blocks in it have the same, as far as they stand. */
const renderBlock = (block: Token, toAddress: ToAddress): ComponentChildren => {
  const all = (tokens: ReadonlyArray<Token> = []) =>
    tokens.map((token) => render(token as MarkedToken));
  const link = (href: string, children: ComponentChildren) => {
    // Addresses of other kinds, such as `javascript:`, stay text.
    const address = /^(https?:\/\/|mailto:)/i.test(href) ? href : toAddress(href);
    if (address === undefined) return children;
    return (
      <a href={address} target="_blank" rel="noopener noreferrer nofollow">
        {children}
      </a>
    );
  };
  const render = (token: MarkedToken, props: { dir?: "auto" } = {}): ComponentChildren => {
    switch (token.type) {
      case "code":
        return <Code language={/^[\w+#.-]+/.exec(token.lang ?? "")?.[0]} text={token.text} />;
      case "codespan":
        return <code>{token.text}</code>;
      case "heading":
        // Of one level, so that the page's outline has no gaps.
        return (
          <h3 class={`depth-${token.depth}`} {...props}>
            {all(token.tokens)}
          </h3>
        );
      case "list":
        return h(
          token.ordered ? "ol" : "ul",
          { ...props, start: token.start || undefined },
          all(token.items),
        );
      case "checkbox":
        return token.checked ? "☑ " : "☐ ";
      case "table": {
        const [head, ...rows] = [token.header, ...token.rows].map((row) => (
          <tr>
            {row.map(({ align, header, tokens }) =>
              h(header ? "th" : "td", { style: { textAlign: align ?? "" } }, all(tokens)),
            )}
          </tr>
        ));
        return (
          <div class="box" role="region" aria-label="Table" tabIndex={0} {...props}>
            <table>
              <thead>{head}</thead>
              <tbody>{rows}</tbody>
            </table>
          </div>
        );
      }
      case "link":
        return link(token.href, all(token.tokens));
      case "image":
        return link(token.href, `🖼 ${token.text || token.href}`);
      case "text":
        return token.tokens === undefined ? decodeEntities(token.text) : all(token.tokens);
      case "escape":
        return token.text;
      case "html":
        return props.dir === undefined ? (
          token.raw
        ) : (
          <p class="plain" {...props}>
            {token.raw}
          </p>
        );
      case "space":
      case "def":
        return null;
      default:
        return h(elements[token.type], props, "tokens" in token && all(token.tokens));
    }
  };
  return render(block as MarkedToken, { dir: "auto" });
};

interface CodeProps {
  readonly language: string | undefined;
  readonly text: string;
}

/** A block of code with the name of its language and a button that copies it. */
export const Code = ({ language, text }: CodeProps) => (
  <div class="code" dir="ltr">
    <div class="row quiet">
      <span>{language ?? "text"}</span>
      <CopyButton text={text} name="Copy code" />
    </div>
    <pre tabIndex={0}>
      <code>{text}</code>
    </pre>
  </div>
);

const entities = new Map(
  Object.entries({ amp: "&", apos: "'", gt: ">", lt: "<", nbsp: "\u00a0", quot: '"' }),
);

const decodeEntities = (text: string): string =>
  text.replace(/&(?:#(\d{1,6})|(\w+));/g, (whole, number, name) =>
    number === undefined ? (entities.get(name) ?? whole) : String.fromCodePoint(Number(number)),
  );
