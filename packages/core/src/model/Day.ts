/**
 * UTC days, by which spending and usage are counted.
 */

/** The length of a day, in milliseconds. */
export const dayMillis = 86_400_000;

/** The UTC day of a time, such as `2026-11-25`. */
export const dayOf = (time: Date): string => time.toISOString().slice(0, 10);

/** The number of UTC days from the Unix epoch to a time. */
export const dayNumber = (now: number): number => Math.floor(now / dayMillis);
