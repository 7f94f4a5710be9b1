/**
 * The HTML that the playground, the guide and the API reference share: the head, and the bar that links the pages to
 * each other. The widget's window shares only the Content Security Policy.
 */

const places = {
  playground: ["/", "Playground"],
  guide: ["/docs/guide", "Guide"],
  docs: ["/docs", "API"],
} as const;

export type Place = keyof typeof places;

interface Document {
  readonly title: string;
  /** The page's place in the bar. */
  readonly place: Place;
  /** The places that the bar links to. */
  readonly places: ReadonlyArray<Place>;
  /** The folder that contains the page's files. */
  readonly folder: "/playground" | "/docs";
  /** The file name of the page's module in that folder. */
  readonly script: string;
  /** Attributes of the `body` element, with a leading space. */
  readonly attributes?: string;
  /** The HTML below the bar. */
  readonly main: string;
}

export const toHtml = (document: Document): string => {
  const { attributes = "", folder, main, place, script, title } = document;
  const links = document.places.map((name) => {
    const [href, text] = places[name];
    return `<a href="${href}"${name === place ? ' aria-current="page"' : ""}>${text}</a>`;
  });
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>${escape(title)}</title>
<link rel="icon" href="${folder}/icon.svg" type="image/svg+xml">
<link rel="stylesheet" href="${folder}/style.css">
<script src="${folder}/theme.js"></script>
<script type="module" src="${folder}/${script}"></script>
</head>
<body${attributes}>
<header class="bar">
<img src="${folder}/icon.svg" alt="" width="24" height="24"><b>Parley</b>
<nav aria-label="Pages">${links.join("\n")}</nav>
<button id="theme" class="plain" aria-label="Light or dark theme" title="Light or dark theme"><svg class="icon" viewBox="0 0 24 24" aria-hidden="true"><circle cx="12" cy="12" r="8"/><path class="half" d="M12 4a8 8 0 0 1 0 16z"/></svg></button>
</header>
${main}
</body>
</html>
`;
};

interface Policy {
  /** Where forms may be submitted to. */
  readonly forms?: "'none'" | "'self'";
  /** Sources, besides the page's own origin, to which requests may go. */
  readonly requests?: string;
  /** Origins, besides the page's own, whose images the page may show. */
  readonly images?: ReadonlyArray<string>;
  /** Origins whose pages may frame this one. */
  readonly ancestors?: ReadonlyArray<string>;
}

/** Returns the Content Security Policy of a page. */
export const toPolicy = ({
  ancestors,
  forms = "'none'",
  images = [],
  requests = "",
}: Policy = {}) =>
  `default-src 'none'; script-src 'self'; style-src 'self'; img-src ${["'self'", ...images].join(" ")}; ` +
  `connect-src 'self'${requests}; base-uri 'none'; form-action ${forms}; ` +
  `frame-ancestors ${ancestors?.join(" ") ?? "'none'"}; require-trusted-types-for 'script'; trusted-types 'none'`;

/** A host that can be a source in the policy, with or without a port. */
const plainHost = /^(\[[\da-f:.]+\]|[\w.-]+)(?::\d+)?$/i;

/**
 * Returns the answers interface's own port, on the host that the browser uses, as a policy source. The source has no
 * scheme, so that the page's scheme applies.
 */
export const toSource = (host = "", answersPort: number | null): string => {
  const name = plainHost.exec(host)?.[1];
  return answersPort === null || name === undefined ? "" : ` ${name}:${answersPort}`;
};

export const escape = (text: string): string =>
  text
    .replaceAll("&", "&amp;")
    .replaceAll('"', "&quot;")
    .replaceAll("<", "&lt;")
    .replaceAll(">", "&gt;");
