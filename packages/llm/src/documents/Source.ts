/**
 * Links from passages to the pages that the reader knows.
 */
import type { Metadata } from "@parley/core/ports";
import type { Passage } from "./Passage.ts";

/** Fills a template such as `https://docs.example/{path}#{heading}`; `{path}` is the document's path without `.md`. */
const fill = (template: string, path: string, anchor: string): string =>
  template
    .replaceAll("{path}", () =>
      encodePath(path.replace(/\.(?:md|txt)$/i, "").replace(/(^|\/)index$/i, "$1")),
    )
    .replaceAll("{heading}", () => encodeURIComponent(anchor))
    .replace(/#$/, "");

const encodePath = (path: string) => encodeURI(path).replace(/[?#()]/g, encodeURIComponent);

/** Returns the passage's title and, if there is a template, its address. */
export const sourceOf = ({ anchor, headings, source, title }: Passage, template: string | null) => {
  const heading = headings.at(-1) ?? title;
  return {
    title: heading === title ? title : `${title} › ${heading}`,
    ...(template !== null && { url: fill(template, source, anchor) }),
  };
};

/** Returns `metadata.sources` for the passages, as far as it fits into an entry's metadata. */
export const sourcesOf = (passages: ReadonlyArray<Passage>, template: string | null): Metadata => {
  const sources = passages.map((passage) => sourceOf(passage, template));
  const texts = sources.map((source) => JSON.stringify(source));
  const isKept = (text: string, at: number) => texts.indexOf(text) === at && text.length < 2000;
  return { sources: sources.filter((_, at) => isKept(texts[at]!, at)) };
};

/** Returns the source as Markdown: a link or, without an address, the title. */
export const toLink = ({ title, url }: ReturnType<typeof sourceOf>): string => {
  const label = title.replace(/[\\[\]<>`*_]/g, "\\$&");
  return url === undefined ? label : `[${label}](${url})`;
};

/**
 * Returns the passage's text with relative links to other documents resolved by the template. Other relative links lead
 * nowhere outside the folder, so only their text remains. Code stays as it is.
 */
export const textOf = (
  { anchor, source, text }: Passage,
  template: string | null,
  documents: ReadonlySet<string>,
): string =>
  text.replace(
    /(^ {0,3}```[^]*?^ {0,3}```|^ {0,3}~~~[^]*?^ {0,3}~~~|`[^`\n]+`)|!?\[([^[\]]*)\]\((<[^<>\n]*>|[^\s()]*)[^()\n]*\)/gm,
    (all: string, code: string | undefined, label: string, target: string) => {
      const href = (target ?? "").replace(/^<|>$/g, "");
      if (code !== undefined || /^(?:https?:|mailto:|tel:|\/)/i.test(href)) return all;
      const base = `folder://documents/${encodePath(source)}`;
      if (template === null || all.startsWith("!") || !URL.canParse(href, base)) return label;
      const { hash, host, pathname, protocol } = new URL(href, base);
      const document = decode(pathname.slice(1));
      if (protocol !== "folder:" || host !== "documents" || !documents.has(document)) return label;
      return `[${label}](${fill(template, document, href === "" ? anchor : decode(hash.slice(1)))})`;
    },
  );

const decode = (text: string): string => {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
};
