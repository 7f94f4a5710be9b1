/** The settings that the server passes to the page. */
export interface PlaygroundConfig {
  readonly general: string;
  readonly answers: string;
  readonly answersPort: number | null;
  /** The origins that the answers interface accepts, where it has a port of its own. */
  readonly corsOrigins: ReadonlyArray<string>;
}
