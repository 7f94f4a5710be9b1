/** The settings that the server passes to the page. Anyone can read them. */
export interface PlaygroundConfig {
  readonly general: string;
  readonly answers: string;
  readonly answersPort: number | null;
  /** The origins that the answers interface accepts, where it has a port of its own. */
  readonly corsOrigins: ReadonlyArray<string>;
  /** What answers: the guide that the server shows, other documents, or a language model; `null`: unknown. */
  readonly answerer: "guide" | "documents" | "model" | null;
  /** Whether the server has the guide. */
  readonly guide: boolean;
}
