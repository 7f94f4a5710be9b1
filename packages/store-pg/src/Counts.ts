/**
 * What is remembered of counts that are dear to make. Chats are only added, so a count up to a position
 * stays true, and only the chats after it need to be counted; an erasure makes it void.
 */

export interface Count {
  readonly matching: number;
  /** The position up to which was counted. */
  readonly reached: number;
  /** How often chats of the chatbot were erased before. */
  readonly erasures: number;
  /** The positions of the newest that match, descending; `null` when they were not looked for. */
  readonly newest: ReadonlyArray<bigint> | null;
}

/** How many of the newest positions are remembered. */
export const newestRemembered = 200;

/** Counts by what was counted, at most so many; the oldest go first. */
export const makeCounts = (most: number) => {
  const counts = new Map<string, Count>();
  return {
    get: (name: string): Count | undefined => counts.get(name),
    set: (name: string, count: Count): void => {
      counts.delete(name);
      counts.set(name, count);
      if (counts.size > most) counts.delete(counts.keys().next().value!);
    },
  };
};
