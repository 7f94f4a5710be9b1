export declare const root: string;
export declare const read: (file: string) => string;
/** The pages in the root and in docs. */
export declare const documents: ReadonlyArray<string>;
export interface Fence {
  /** What stands behind the opening mark: the language and more. */
  readonly info: string;
  readonly text: string;
}
export declare const fencesOf: (markdown: string) => ReadonlyArray<Fence>;
/** What stands under a heading, up to the next of the same level. */
export declare const sectionOf: (markdown: string, heading: string) => string;
//# sourceMappingURL=Fences.d.ts.map
