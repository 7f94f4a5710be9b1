/** What the site's page sends to the window, along with a port of their message channel. */
export interface Greeting {
  readonly locale: "en" | "de";
  /** The background colour, and a text colour that is legible on it, as CSS values. */
  readonly colors: readonly [string, string];
  /** Whether the site's own backend signs the tokens. */
  readonly isKnown: boolean;
}

/** A token in the form in which the server and the sites' backends send it. */
export interface Token {
  readonly token: string;
  readonly expires_at: string;
}

/**
 * A message from the page: that the window is shown, or the response to `token`, which is `null` if the backend failed.
 */
export type FromPage = "open" | { readonly token: Partial<Token> | null };

/** A message from the window. */
export type FromWindow = "ready" | "close" | "token";
