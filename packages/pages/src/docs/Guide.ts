/**
 * `@parley/pages/guide`: Markdown documents as pages below `/docs/`, with a search over them. They run no script and
 * load nothing from other hosts.
 */
import { toPath, type Pages } from "@parley/http";
import { Effect, FileSystem, Path } from "effect";
import { HttpServerResponse } from "effect/http";
import { Marked } from "marked";

const types: Readonly<Record<string, string>> = {
  json: "application/json",
  png: "image/png",
  svg: "image/svg+xml",
};

/** A part of a document. */
export interface GuidePassage {
  /** `README.md`, or the path in the folder. */
  readonly source: string;
  /** The headings around it, the outermost first. */
  readonly headings: ReadonlyArray<string>;
  /** Markdown. */
  readonly text: string;
}

/** Options of {@link makeGuide}. */
export interface GuideOptions {
  /** The path of the project's `README.md`. */
  readonly readme: string;
  /** The path of the folder `docs` beside it. */
  readonly folder: string;
  /** Finds the passages that fit a question, the best first, `limit` at most. */
  readonly search: (
    question: string,
    limit: number,
  ) => Effect.Effect<ReadonlyArray<GuidePassage>, unknown>;
}

/** The pages of the guide: `/docs/guide` lists and searches them. */
export const makeGuide = Effect.fnUntraced(function* (options: GuideOptions) {
  const fs = yield* FileSystem.FileSystem;
  const path = yield* Path.Path;
  const headers = yield* guarded;

  const names = yield* fs.readDirectory(options.folder, { recursive: true }).pipe(Effect.orDie);
  const files = new Map<string, { readonly name: string; readonly bytes: Uint8Array }>();
  for (const name of ["README.md", ...names.toSorted().map((name) => `docs/${name}`)]) {
    if (!/\.(md|json|png|svg)$/.test(name)) continue;
    const file = name === "README.md" ? options.readme : path.join(options.folder, "..", name);
    files.set(toAddress(name), { name, bytes: yield* fs.readFile(file).pipe(Effect.orDie) });
  }
  let document = "";
  /** Where a link of the document leads; `null` out of the guide, such as to source code. */
  const resolve = (link: string): string | null => {
    if (/^(https?:|#)/.test(link)) return link;
    const { hash, pathname } = new URL(link, `file:///${document}`);
    const address = toAddress(pathname.slice(1));
    return files.has(address) ? address + hash : null;
  };
  const toHtml = (name: string, text: string): string => {
    document = name;
    return marked.parse(text, { async: false });
  };
  const marked = new Marked({
    renderer: {
      heading({ depth, text, tokens }) {
        const inner = this.parser.parseInline(tokens);
        return `<h${depth} id="${escape(toAnchor(text))}">${inner}</h${depth}>\n`;
      },
      html: ({ text }) => escape(text),
      image: ({ href, text }) => `<img src="${escape(resolve(href) ?? "")}" alt="${escape(text)}">`,
      link({ href, tokens }) {
        const [address, inner] = [resolve(href), this.parser.parseInline(tokens)];
        return address === null ? inner : `<a href="${escape(address)}">${inner}</a>`;
      },
    },
  });

  const pages = new Map<string, { readonly title: string; readonly html: () => string }>();
  for (const [address, { bytes, name }] of files) {
    if (!name.endsWith(".md")) continue;
    const text = new TextDecoder().decode(bytes);
    const title = /^# (.*)$/m.exec(text)?.[1] ?? address;
    pages.set(address, { title, html: () => layout(title, "", toHtml(name, text)) });
  }
  const list = [...pages].map(
    ([address, { title }]) => `<li><a href="${address}">${escape(title)}</a></li>`,
  );
  const search = Effect.fnUntraced(function* (query: string) {
    const passages = yield* options.search(query, 10);
    const found = passages.map(({ headings, source, text }) => {
      const name = source === "README.md" ? source : `docs/${source}`;
      const address = `${toAddress(name)}#${toAnchor(headings.at(-1) ?? "")}`;
      const title = headings.join(" › ");
      const passage = toHtml(name, text);
      return `<li><a href="${escape(address)}">${escape(title)}</a>${passage}</li>`;
    });
    const results = found.length === 0 ? "<p>Nothing found.</p>" : `<ol>${found.join("")}</ol>`;
    return layout("Search", query, `<h1>Search</h1>${results}`);
  }, Effect.orDie);

  const toPage = (html: string) =>
    HttpServerResponse.text(html, { contentType: "text/html; charset=utf-8", headers });
  const respond = (address: string, target: string) => {
    const page = pages.get(address);
    if (page !== undefined) return Effect.sync(() => toPage(page.html()));
    const file = files.get(address);
    if (file !== undefined) {
      const contentType = types[path.extname(file.name).slice(1)]!;
      return Effect.succeed(HttpServerResponse.uint8Array(file.bytes, { contentType, headers }));
    }
    const query = new URLSearchParams(target.split("?")[1]).get("q")?.trim().slice(0, 200) ?? "";
    const all = layout("Guide", "", `<h1>Guide</h1><ul>${list.join("")}</ul>`);
    return query === "" ? Effect.succeed(toPage(all)) : Effect.map(search(query), toPage);
  };
  const guide: Pages = () =>
    Effect.succeed(({ method, url }) => {
      const address = toPath(url);
      return method === "GET" && (address === "/docs/guide" || files.has(address))
        ? respond(address, url)
        : undefined;
    });
  return guide;
});

/** The address of a document by its path in the repository. */
const toAddress = (name: string): string => `/docs/${name.replace(/^docs\/|\.md$/g, "")}`;

/** The anchor of a heading, as GitHub makes it. */
const toAnchor = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");

const escape = (text: string): string =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll('"', "&quot;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;");

const style = `
:root { color-scheme: light dark; font: 1rem/1.6 system-ui, sans-serif; }
body { margin: 0 auto; max-width: 52rem; padding: 1rem; overflow-wrap: break-word; }
nav { align-items: center; display: flex; flex-wrap: wrap; gap: 1rem; }
form { margin-inline-start: auto; }
input, button { font: inherit; }
pre, table { display: block; overflow-x: auto; }
pre { background: color-mix(in srgb, currentColor 7%, transparent); padding: 0.75rem; }
code { font-size: 0.9em; }
th, td { border-bottom: 1px solid color-mix(in srgb, currentColor 25%, transparent); padding: 0.25rem 0.5rem; text-align: start; vertical-align: top; }
img { max-width: 100%; }
`;

const guarded = Effect.promise(async () => {
  const digest = await crypto.subtle.digest("SHA-256", new TextEncoder().encode(style));
  const hash = btoa(String.fromCharCode(...new Uint8Array(digest)));
  return {
    "cache-control": "no-cache",
    "content-security-policy":
      `default-src 'none'; style-src 'sha256-${hash}'; ` +
      "img-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
  };
});

const layout = (title: string, query: string, main: string): string => `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(title)} · Parley</title>
<style>${style}</style>
</head>
<body>
<nav aria-label="Documentation">
<a href="/docs/guide">Guide</a> <a href="/docs">API</a>
<form role="search" action="/docs/guide"><input type="search" name="q" aria-label="Search the guide" value="${escape(query)}" maxlength="200" required> <button>Search</button></form>
</nav>
<main>
${main}
</main>
</body>
</html>
`;
