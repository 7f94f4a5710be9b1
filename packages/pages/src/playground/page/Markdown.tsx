/**
 * Markdown as elements. Raw HTML is shown as the text that it is, and nothing is loaded: the page never parses HTML of
 * an answer.
 */
import { lexer, type MarkedToken, type Token } from "marked";
import { h, type ComponentChildren } from "preact";

/** The elements of tokens that have nothing but their content. */
const elements = {
  blockquote: "blockquote",
  br: "br",
  del: "del",
  em: "em",
  // Of one level, so that the page's outline has no gaps.
  heading: "h3",
  hr: "hr",
  list_item: "li",
  paragraph: "p",
  strong: "strong",
} as const;

const all = (tokens: ReadonlyArray<Token> = []) =>
  tokens.map((token) => render(token as MarkedToken));

const render = (token: MarkedToken): ComponentChildren => {
  switch (token.type) {
    case "code":
      return (
        <pre dir="ltr" tabIndex={0}>
          <code>{token.text}</code>
        </pre>
      );
    case "codespan":
      return <code>{token.text}</code>;
    case "list":
      return h(
        token.ordered ? "ol" : "ul",
        { dir: "auto", start: token.start || undefined },
        all(token.items),
      );
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "table":
      return (
        <table dir="auto" tabIndex={0}>
          {[token.header, ...token.rows].map((row) => (
            <tr>
              {row.map(({ header, tokens }) =>
                h(header ? "th" : "td", { dir: "auto" }, all(tokens)),
              )}
            </tr>
          ))}
        </table>
      );
    case "link":
      return link(token.href, all(token.tokens));
    case "image":
      return link(token.href, `🖼 ${token.text || token.href}`);
    case "text":
      return token.tokens === undefined ? decodeEntities(token.text) : all(token.tokens);
    case "escape":
      return token.text;
    case "html":
      return token.raw;
    case "space":
    case "def":
      return null;
    default:
      return h(elements[token.type], { dir: "auto" }, "tokens" in token && all(token.tokens));
  }
};

/** Addresses of other kinds, such as `javascript:`, stay text. */
const link = (href: string, children: ComponentChildren) =>
  /^(https?:\/\/|mailto:)/i.test(href) ? (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ) : (
    children
  );

const entities = new Map(
  Object.entries({ amp: "&", apos: "'", gt: ">", lt: "<", nbsp: "\u00a0", quot: '"' }),
);

const decodeEntities = (text: string): string =>
  text.replace(/&(?:#(\d{1,6})|(\w+));/g, (whole, number, name) =>
    number === undefined ? (entities.get(name) ?? whole) : String.fromCodePoint(Number(number)),
  );

export const Markdown = ({ text }: { readonly text: string }) => (
  <div class="stack markdown">{all(lexer(text))}</div>
);
