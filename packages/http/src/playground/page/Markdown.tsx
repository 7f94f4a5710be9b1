/**
 * Markdown as elements. Raw HTML is shown as the text that it is, and nothing is loaded: the page never parses HTML of
 * an answer.
 */
import { lexer, type MarkedToken, type Token } from "marked";
import type { ComponentChildren } from "preact";
import { useMemo } from "preact/hooks";

const entities: Readonly<Record<string, string>> = {
  amp: "&",
  apos: "'",
  gt: ">",
  lt: "<",
  nbsp: "\u00a0",
  quot: '"',
};

const decodeEntities = (text: string): string =>
  text.replace(/&(?:#(\d{1,6})|(\w+));/g, (whole, number, name) =>
    number === undefined ? (entities[name] ?? whole) : String.fromCodePoint(Number(number)),
  );

/** Addresses that a reader may open; all others, such as `javascript:`, stay text. */
const isSafe = (href: string): boolean =>
  URL.canParse(href) && /^(https?|mailto):$/.test(new URL(href).protocol);

const link = (href: string, children: ComponentChildren) =>
  isSafe(href) ? (
    <a href={href} target="_blank" rel="noopener noreferrer nofollow">
      {children}
    </a>
  ) : (
    children
  );

const all = (tokens: ReadonlyArray<Token> | undefined) =>
  tokens?.map((token) => render(token as MarkedToken));

const render = (token: MarkedToken): ComponentChildren => {
  switch (token.type) {
    case "paragraph":
      return <p dir="auto">{all(token.tokens)}</p>;
    case "heading":
      // Of one level, so that the page's outline has no gaps.
      return (
        <h3 dir="auto" class={`depth-${token.depth}`}>
          {all(token.tokens)}
        </h3>
      );
    case "code":
      return (
        <pre dir="ltr" tabIndex={0}>
          <code>{token.text}</code>
        </pre>
      );
    case "blockquote":
      return <blockquote dir="auto">{all(token.tokens)}</blockquote>;
    case "list":
      return token.ordered ? (
        <ol dir="auto" start={token.start || 1}>
          {all(token.items)}
        </ol>
      ) : (
        <ul dir="auto">{all(token.items)}</ul>
      );
    case "list_item":
      return <li dir="auto">{all(token.tokens)}</li>;
    case "checkbox":
      return token.checked ? "☑ " : "☐ ";
    case "table":
      return (
        <div class="table" tabIndex={0}>
          <table dir="auto">
            <thead>
              <tr>
                {token.header.map(({ tokens }) => (
                  <th scope="col">{all(tokens)}</th>
                ))}
              </tr>
            </thead>
            <tbody>
              {token.rows.map((row) => (
                <tr>
                  {row.map(({ tokens }) => (
                    <td dir="auto">{all(tokens)}</td>
                  ))}
                </tr>
              ))}
            </tbody>
          </table>
        </div>
      );
    case "hr":
      return <hr />;
    case "br":
      return <br />;
    case "strong":
      return <strong>{all(token.tokens)}</strong>;
    case "em":
      return <em>{all(token.tokens)}</em>;
    case "del":
      return <del>{all(token.tokens)}</del>;
    case "codespan":
      return <code>{token.text}</code>;
    case "link":
      return link(token.href, all(token.tokens));
    case "image":
      return link(token.href, `🖼 ${token.text || token.href}`);
    case "text":
      return token.tokens === undefined ? decodeEntities(token.text) : all(token.tokens);
    case "escape":
      return token.text;
    case "space":
    case "def":
      return null;
    default:
      return token.raw;
  }
};

export const Markdown = ({ text }: { readonly text: string }) =>
  useMemo(() => <div class="markdown">{all(lexer(text))}</div>, [text]);
