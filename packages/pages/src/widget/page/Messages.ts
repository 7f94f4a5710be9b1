/** What the site's page sends to the window along with the port of their channel. */
export interface Greeting {
  readonly locale: "en" | "de";
  /** A background colour, and a text colour that is legible on it, as CSS. */
  readonly colors: readonly [string, string];
  /** Whether the site's own backend signs the tokens. */
  readonly isKnown: boolean;
}

/** A token as the server and the backends of sites send it. */
export interface Token {
  readonly token: string;
  readonly expires_at: string;
}

/**
 * A message from the page: the window is shown, or the answer to `token`, with `null` if the backend failed.
 */
export type FromPage = "open" | { readonly token: Partial<Token> | null };

/** A message from the window. */
export type FromWindow = "ready" | "close" | "token";
