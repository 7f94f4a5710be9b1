/**
 * `@parley/pages/guide`: Markdown documents as pages below `/docs/`, with a search. The pages load nothing from other
 * hosts.
 */
import { toPath, type Pages } from "@parley/http";
import { Effect, FileSystem, Path } from "effect";
import { HttpServerResponse } from "effect/http";
import { Marked, Renderer } from "marked";
import { refuseUnknown } from "../Options.ts";
import { escape, toHtml, toPolicy, type Place } from "../Shell.ts";
import {
  contentTypes,
  filesOf,
  isRead,
  loadFiles,
  makeStaticFile,
  type StaticFile,
} from "../StaticFile.ts";

export type { Place };

/** Summaries of the documents, in groups and in reading order, by path without `.md`. */
const groups: Readonly<Record<string, Readonly<Record<string, string>>>> = {
  "First steps": {
    README: "What Parley is, what it promises, and the first five minutes.",
    playground: "A page for trying out a chatbot.",
    faq: "Short answers to common first questions.",
    install: "As a package, a systemd service or a container, and behind a proxy.",
  },
  "Run it": {
    settings: "What each setting means, in detail.",
    models: "Language models from OpenAI, Anthropic, Ollama and others.",
    operations: "Recipes for keys, chatbots, backups, upgrades and erasures.",
    monitoring: "Health, metrics, alerts, logs and traces.",
    troubleshooting: "Common symptoms, their causes and how to fix them.",
    scaling: "Several servers, large chatbots and many asks at once.",
    performance: "How fast Parley is, and how to repeat the measurements.",
    security: "Risk by risk: what the server does, and what is left to you.",
  },
  "Call it": {
    interface: "The two HTTP interfaces, explained.",
    errors: "Every error code and its meaning.",
    visitors: "A chatbot on a public page: visitor tokens and a widget.",
    "library/client": "The client for browsers and Node.js.",
  },
  "Build on it": {
    "library/embedding": "Parley's services inside your own program.",
    "library/mounting": "Both interfaces on your own HTTP server.",
    "library/write-an-answerer": "Answers from your own service.",
    "library/write-a-store": "Chats in another database.",
    "library/testing": "Testing your service without a database.",
    decisions: "Why Parley is built the way it is.",
  },
};

const filePaths = filesOf("/docs", "guide.js");

/** A part of a document. */
export interface GuidePassage {
  /** The document's path in the folder `docs`, or `README.md`. */
  readonly source: string;
  /** The headings above the passage, outermost first. */
  readonly headings: ReadonlyArray<string>;
  /** The passage in Markdown. */
  readonly text: string;
}

/** Options of {@link makeGuide}. */
export interface GuideOptions {
  /** The path of the project's `README.md`. */
  readonly readme: string;
  /** The path of the folder `docs`. */
  readonly folder: string;
  /** Finds at most `limit` passages that match a question, best first. */
  readonly search: (
    question: string,
    limit: number,
  ) => Effect.Effect<ReadonlyArray<GuidePassage>, unknown>;
  /** The pages that the listener serves; only the guide by default. */
  readonly places?: ReadonlyArray<Place>;
}

/** Makes the pages of the guide. The page `/docs/guide` lists and searches the documents. */
export const makeGuide = Effect.fnUntraced(function* (options: GuideOptions) {
  refuseUnknown("makeGuide", options, ["readme", "folder", "search", "places"]);
  const fs = yield* FileSystem.FileSystem;
  const path = yield* Path.Path;

  const names = yield* fs.readDirectory(options.folder, { recursive: true }).pipe(Effect.orDie);
  const sources = new Map<string, { readonly name: string; readonly bytes: Uint8Array }>();
  for (const name of ["README.md", ...names.toSorted().map((name) => `docs/${name}`)]) {
    if (!/\.(md|json|png|svg)$/.test(name)) continue;
    const file = name === "README.md" ? options.readme : path.join(options.folder, "..", name);
    sources.set(toAddress(name), { name, bytes: yield* fs.readFile(file).pipe(Effect.orDie) });
  }
  let document = "";
  /** How often each anchor has occurred in the document so far: like GitHub, the guide numbers duplicates. */
  let anchors = new Map<string, number>();
  let sections: Array<string> = [];
  /** Returns the address for a link in the document; `null` if its target, such as source code, is not in the guide. */
  const resolve = (link: string): string | null => {
    if (/^(https?:|#)/.test(link)) return link;
    const { hash, pathname } = new URL(link, `file:///${document}`);
    const address = toAddress(pathname.slice(1));
    return sources.has(address) ? address + hash : null;
  };
  const render = (name: string, text: string): string => {
    document = name;
    anchors = new Map();
    sections = [];
    return marked.parse(text, { async: false });
  };
  const marked = new Marked({
    renderer: {
      code({ lang = "", text }) {
        return `<div class="code"><div class="row quiet"><span>${escape(lang.split(" ")[0] || "text")}</span></div><pre tabindex="0"><code>${escape(text)}</code></pre></div>\n`;
      },
      heading({ depth, text, tokens }) {
        const inner = this.parser.parseInline(tokens);
        const anchor = toAnchor(text);
        const count = anchors.get(anchor) ?? 0;
        anchors.set(anchor, count + 1);
        const id = escape(count === 0 ? anchor : `${anchor}-${count}`);
        const link = `<a class="anchor" href="#${id}" aria-label="Link to this section">#</a>`;
        if (depth === 2) sections.push(`<li><a href="#${id}">${inner}</a></li>`);
        return `<h${depth} id="${id}">${inner}${depth === 1 ? "" : ` ${link}`}</h${depth}>\n`;
      },
      html: ({ text }) => (text.startsWith("<!--") ? "" : escape(text)),
      image: ({ href, text }) => `<img src="${escape(resolve(href) ?? "")}" alt="${escape(text)}">`,
      link({ href, tokens }) {
        const [address, inner] = [resolve(href), this.parser.parseInline(tokens)];
        return address === null ? inner : `<a href="${escape(address)}">${inner}</a>`;
      },
      table(token) {
        const table = Renderer.prototype.table.call(this, token);
        return `<div class="box" role="group" aria-label="Table" tabindex="0">${table}</div>\n`;
      },
    },
  });

  const titles = new Map<string, string>();
  const texts = new Map<string, string>();
  for (const [address, { bytes, name }] of sources) {
    if (!name.endsWith(".md")) continue;
    const text = new TextDecoder().decode(bytes);
    texts.set(address, text);
    titles.set(address, /^# (.*)$/m.exec(text)?.[1] ?? address);
  }
  const order = Object.values(groups)
    .flatMap((group) => Object.keys(group).map(toAddress))
    .filter((address) => titles.has(address));
  const toLink = (address: string, isOpen = false) =>
    `<a href="${address}"${isOpen ? ' aria-current="page"' : ""}>${escape(titles.get(address)!)}</a>`;
  const toList = (open: string, isLong: boolean) =>
    Object.entries(groups).map(([group, documents]) => {
      const items = Object.entries(documents).map(([name, sentence]) => {
        const address = toAddress(name);
        const more = isLong ? `<span class="quiet">${sentence}</span>` : "";
        return titles.has(address) ? `<li>${toLink(address, address === open)}${more}</li>` : "";
      });
      return `<h2>${group}</h2><ul>${items.join("")}</ul>`;
    });
  const layout = (title: string, open: string, main: string, query = "") =>
    toHtml({
      title: `${title} · Parley`,
      place: "guide",
      places: options.places ?? ["guide"],
      folder: "/docs",
      script: "guide.js",
      main: `<div class="guide">
<nav class="side" aria-label="Guide"><form role="search" action="/docs/guide"><input class="wide" type="search" name="q" aria-label="Search the guide" placeholder="Search the guide" value="${escape(query)}" maxlength="200" required></form>${toList(open, false).join("")}</nav>
<main class="markdown">${main}</main>
</div>`,
    });
  const toPage = (address: string): string => {
    const title = titles.get(address)!;
    const html = render(sources.get(address)!.name, texts.get(address)!);
    const contents = `<details class="contents"><summary>On this page</summary><ul>${sections.join("")}</ul></details>`;
    const at = order.indexOf(address);
    const neighbours = Object.entries({ Previous: order[at - 1], Next: order[at + 1] })
      .filter(([, neighbour]) => neighbour !== undefined)
      .map(([name, neighbour]) => `<span>${name}: ${toLink(neighbour!)}</span>`);
    const main = sections.length < 3 ? html : html.replace("</h1>", `</h1>${contents}`);
    return layout(title, address, `${main}<p class="next facts">${neighbours.join("")}</p>`);
  };
  const search = Effect.fnUntraced(function* (query: string) {
    const passages = yield* options.search(query, 10);
    const items = passages.map(({ headings, source, text }) => {
      const name = source === "README.md" ? source : `docs/${source}`;
      const address = `${toAddress(name)}#${toAnchor(headings.at(-1) ?? "")}`;
      const title = headings.join(" › ");
      return `<li><a href="${escape(address)}">${escape(title)}</a>${render(name, text)}</li>`;
    });
    const results = items.length === 0 ? "<p>No results.</p>" : `<ol>${items.join("")}</ol>`;
    return layout("Search", "", `<h1>Search</h1>${results}`, query);
  }, Effect.orDie);

  const policy = toPolicy({ forms: "'self'" });
  const html = (text: string) => makeStaticFile(text, "text/html; charset=utf-8");
  const files = yield* Effect.cached(loadFiles(filePaths));
  const pages = new Map<string, Effect.Effect<StaticFile>>();
  for (const address of titles.keys()) {
    pages.set(address, yield* Effect.cached(Effect.suspend(() => html(toPage(address)))));
  }
  const list = (heading: string) =>
    Effect.suspend(() =>
      html(layout(heading, "", `<h1>${heading}</h1>${toList("", true).join("")}`)),
    );
  const guide: Pages = () =>
    Effect.succeed(({ headers, method, url }) => {
      if (!isRead(method)) return undefined;
      // A request for a document's `.md` file gets the document's page.
      const address = toPath(url).replace(/^(\/docs\/.+)\.md$/, "$1");
      if (address === "/docs/guide" || address === "/docs/") {
        const query = new URLSearchParams(url.split("?")[1]).get("q")?.trim().slice(0, 200) ?? "";
        const page = query === "" ? list("Guide") : Effect.flatMap(search(query), html);
        return Effect.map(page, (file) => file(headers, policy));
      }
      const page = pages.get(address);
      if (page !== undefined) return Effect.map(page, (file) => file(headers, policy));
      const source = sources.get(address);
      if (source !== undefined) {
        const contentType = contentTypes[path.extname(source.name).slice(1)]!;
        const options = { contentType, headers: { "content-security-policy": policy } };
        return Effect.succeed(HttpServerResponse.uint8Array(source.bytes, options));
      }
      if (filePaths.includes(address))
        return Effect.map(files, (fileAt) => fileAt.get(address)!(headers));
      if (!address.startsWith("/docs/") || !/text\/html/.test(headers["accept"] ?? ""))
        return undefined;
      return Effect.map(list("There is no such page"), (file) =>
        HttpServerResponse.setStatus(file(headers, policy), 404),
      );
    });
  return guide;
});

/** Returns the address of a document, given its path in the repository. */
const toAddress = (name: string): string => `/docs/${name.replace(/^docs\/|\.md$/g, "")}`;

/** Returns the anchor of a heading, in the form that GitHub generates. */
const toAnchor = (heading: string): string =>
  heading
    .toLowerCase()
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .replaceAll(" ", "-");
