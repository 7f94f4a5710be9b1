/** The settings that the server passes to the page. Anyone can read them. */
export interface PlaygroundConfig {
  readonly general: string;
  readonly answers: string;
  readonly answersPort: number | null;
  /** The origins that the answers interface accepts; empty if the interface is on the page's own port. */
  readonly corsOrigins: ReadonlyArray<string>;
  /** What answers: the guide that the server shows, other documents, or a language model; `null` if unknown. */
  readonly answerer: "guide" | "documents" | "model" | null;
  /** The maximum length of a question, in code points. */
  readonly questionLength: number;
  /** By English phrase, texts to show instead of the page's own; and their language. */
  readonly texts: Readonly<Record<string, string>>;
  readonly lang?: string | undefined;
  /** Whether the server has the guide. */
  readonly guide: boolean;
}
