/**
 * Colours for code, in a file of its own that is loaded with the first block of code. The colours are highlights, which
 * leave the elements and their text as they are for the clipboard and for screen readers. Each pattern takes time in
 * proportion to the text: the code in an answer may be hostile.
 */
const block = String.raw`\/\*[^]*?(?:\*\/|(?![^]))`;
/** A string on one line, and one that may span lines; both may lack their end. */
const inLine = (quote: string) => String.raw`${quote}(?:\\.|[^${quote}\\\n])*${quote}?`;
const inLines = (quote: string) => String.raw`${quote}(?:\\[^]|[^${quote}\\])*${quote}?`;
const strings = `${inLine('"')}|${inLine("'")}`;
const words = (list: string) => String.raw`\b(?:${list.replaceAll(/\s+/g, "|")})\b`;
const keys = String.raw`"(?:\\.|[^"\\\n])*"(?=\s*:)|(?<![\w.-])[\w.-]+(?=\s*[:=])`;

/** By the names of languages, what their keywords, comments and strings look like. */
const families: Readonly<Record<string, readonly [string, string, string]>> = {
  "c c# c++ cpp cs csharp go java javascript js jsx kotlin kt php rs rust swift ts tsx typescript":
    [
      words(`abstract as async await bool break case catch char class const continue default defer delete do double else enum
        export extends false final finally float fn for foreach from func function go if impl implements import in instanceof
        int interface let long loop match mod mut namespace new nil null of override package private protected pub public
        readonly return self static string struct super switch this throw trait true try type typeof undefined unsigned use
        using val var void when where while yield`),
      String.raw`\/\/.*|${block}`,
      // In Rust, a quote after `&` or `<` begins the name of a lifetime.
      `${inLine('"')}|(?<![&<])${inLine("'")}|${inLines("\u0060")}`,
    ],
  "py python r rb ruby": [
    words(`and as assert async await begin break class continue def del do elif else elsif end except False finally for from
      if import in is lambda module next nil None not or pass raise rescue return self then True try unless while with yield`),
    "#.*",
    `"""[^]*?(?:"""|(?![^]))|'''[^]*?(?:'''|(?![^]))|${strings}`,
  ],
  "bash console curl docker dockerfile makefile powershell sh shell zsh": [
    words(`ADD ARG CMD COPY ENTRYPOINT ENV EXPOSE FROM RUN USER WORKDIR apt-get case cd curl do docker done echo elif else esac
      exit export fi for function git if in npm npx pip return set sudo then until while`),
    String.raw`(?<!\S)#.*`,
    String.raw`(?<!\w)(?:${inLines('"')}|'[^']*'?)`,
  ],
  "lua postgresql sql sqlite": [
    words(`add all alter and as asc begin between by case check commit constraint create default delete desc distinct drop else
      end exists false foreign from full function group having if in index inner insert into is join key left like limit local
      not null on or order outer primary references returning right rollback select set table then true union unique update
      using values view when where while with`),
    `--.*|${block}`,
    `${inLine('"')}|'[^']*'?`,
  ],
  "conf env ini json json5 jsonc nginx toml yaml yml": [
    `${keys}|${words("true false null yes no on off")}`,
    String.raw`(?<!\S)(?:#|\/\/|;).*`,
    String.raw`(?<!\w)(?:${strings})`,
  ],
  "css less scss": [String.raw`@[\w-]+|${keys}`, block, strings],
  "html svg vue xml": [
    String.raw`<[\/!?]?[\w:-]+|\/?>`,
    "<!--[^]*?(?:-->|(?![^]))",
    `(?<==)(?:"[^"]*"?|'[^']*'?)`,
  ],
  "diff patch": ["^@@.*", "^-.*", String.raw`^\+.*`],
};

/** Returns the comments, strings, numbers and keywords of the code; none of a language that is unknown. */
export const tokensOf = (text: string, language: string) => {
  const name = language.toLowerCase();
  const names = Object.keys(families).find((names) => names.split(" ").includes(name));
  if (names === undefined) return [];
  const [keyword, comment, string] = families[names]!;
  const pattern = `(?<comment>${comment})|(?<keyword>${keyword})|(?<string>${string})|(?<number>(?<![\\w.@]|\\w-)\\d[\\w.]*)`;
  const flags = /sql/.test(name) ? "gim" : "gm";
  return Array.from(text.matchAll(new RegExp(pattern, flags)), ({ 0: token, groups, index }) => {
    const kind = Object.keys(groups!).find((kind) => groups![kind] !== undefined)!;
    return { kind, start: index, end: index + token.length };
  });
};

/** Colours the code in an element with nothing but text. Returns a function that removes the colours. */
export const paint = (element: Element, language: string): (() => void) => {
  const node = element.firstChild!;
  const removals = tokensOf(node.nodeValue ?? "", language).map(({ end, kind, start }) => {
    if (!CSS.highlights.has(kind)) CSS.highlights.set(kind, new Highlight());
    const highlight = CSS.highlights.get(kind)!;
    const ends = { startContainer: node, startOffset: start, endContainer: node, endOffset: end };
    const range = new StaticRange(ends);
    highlight.add(range);
    return () => highlight.delete(range);
  });
  return () => removals.forEach((remove) => remove());
};
