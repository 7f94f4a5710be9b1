/** What the site's page sends to the window, along with a port of their message channel. */
export interface Greeting {
  /** The language of the texts, and that of the page. */
  readonly locale: string;
  readonly lang: string;
  readonly dir: string;
  /** The brand's colour in sRGB, and a text colour that is legible on it, as CSS values. */
  readonly colors: readonly [string, string];
  readonly theme: string;
  /** By English phrase, texts to show instead of the window's own. */
  readonly texts: Readonly<Record<string, string>>;
  readonly title: string | undefined;
  /** The address of an image. */
  readonly logo: string | undefined;
  /** Where visitors reach a person: an address with `https:`, `mailto:` or `tel:`. */
  readonly contact: string | undefined;
  /** Whether the site's own backend signs the tokens. */
  readonly isKnown: boolean;
}

/** A token in the form in which the server and the sites' backends send it. */
export interface Token {
  readonly token: string;
  readonly expires_at: string;
}

/**
 * A message from the page: that the window is shown, a question to ask, or the response to `token`, which is `null` if
 * the backend failed.
 */
export type FromPage =
  | "open"
  | { readonly token: Partial<Token> | null }
  | { readonly ask: string };

/** A message from the window. `asking` tells whether it waits for an answer. */
export type FromWindow =
  | "ready"
  | "close"
  | "token"
  | { readonly asking: boolean }
  | { readonly event: "question" | "answer"; readonly detail?: object };
