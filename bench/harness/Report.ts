/**
 * The printed report of measurements.
 */
import type { Measured } from "./Load.ts";

export const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
};

/** One server in one scenario: medians over its rounds. */
export const line = (name: string, rounds: ReadonlyArray<Measured>): string => {
  const of = (figure: keyof Measured) => median(rounds.map((round) => round[figure]));
  return (
    `  ${name.padEnd(12)}${of("requestsPerSecond").toFixed(0).padStart(7)} req/s` +
    `   p50 ${of("p50Millis").toFixed(2).padStart(6)} ms   p99 ${of("p99Millis").toFixed(2).padStart(6)} ms`
  );
};
