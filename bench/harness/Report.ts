/**
 * Calculates and formats the figures of a run.
 */
import type { Measurement } from "./Load.ts";

const median = (values: ReadonlyArray<number>): number => {
  const sorted = values.toSorted((a, b) => a - b);
  const middle = sorted.length >> 1;
  return sorted.length % 2 === 1 ? sorted[middle]! : (sorted[middle - 1]! + sorted[middle]!) / 2;
};

/** One server's medians over the rounds of one scenario. */
export interface Figures {
  readonly server: string;
  readonly perSecond: number;
  readonly p50Millis: number;
  readonly p99Millis: number;
  readonly serverMicros: number;
  readonly postgresMicros: number;
}

export interface Result {
  readonly scenario: string;
  readonly connections: number;
  readonly figures: ReadonlyArray<Figures>;
}

/** How long an installed server takes to start, and how many bytes of memory it holds, as medians over the rounds. */
export interface StartFigures {
  readonly server: string;
  readonly startMillis: number;
  readonly idle: number;
  readonly loaded: number;
  readonly peak: number;
}

export interface Run {
  readonly machine: string;
  readonly postgres: string;
  readonly node: string;
  readonly rounds: number;
  readonly seconds: number;
  readonly results: ReadonlyArray<Result>;
  readonly starts: ReadonlyArray<StartFigures>;
}

/** The median of each figure over the rounds. */
export const medians = <Name extends string>(
  names: ReadonlyArray<Name>,
  rounds: ReadonlyArray<Readonly<Record<Name, number>>>,
): Record<Name, number> =>
  Object.fromEntries(
    names.map((name) => [name, median(rounds.map((round) => round[name]))]),
  ) as Record<Name, number>;

export const figuresOf = (server: string, rounds: ReadonlyArray<Measurement>): Figures => ({
  server,
  ...medians(["perSecond", "p50Millis", "p99Millis", "serverMicros", "postgresMicros"], rounds),
});

export const cpuOf = ({ postgresMicros, serverMicros }: Figures) => serverMicros + postgresMicros;

/** Returns lines for a terminal. Each server's ratios are relative to `reference`, if that was measured. */
export const linesOf = (
  figures: ReadonlyArray<Figures>,
  reference: Figures | undefined,
): ReadonlyArray<string> =>
  figures.map((row) => {
    const { p50Millis, p99Millis, perSecond, postgresMicros, server, serverMicros } = row;
    const columns = [
      `  ${server.padEnd(12)}`,
      `${perSecond.toFixed(perSecond < 100 ? 1 : 0).padStart(7)} req/s`,
      `  p50 ${p50Millis.toFixed(2).padStart(8)} ms`,
      `  p99 ${p99Millis.toFixed(2).padStart(8)} ms`,
      `  CPU ${cpuOf(row).toFixed(0).padStart(6)} us`,
      ` (server ${serverMicros.toFixed(0)} + PostgreSQL ${postgresMicros.toFixed(0)})`.padEnd(34),
    ];
    if (reference === undefined || reference === row) return columns.join("").trimEnd();
    const [throughput, cpu, p99] = [
      perSecond / reference.perSecond,
      cpuOf(row) / cpuOf(reference),
      p99Millis / reference.p99Millis,
    ].map((ratio) => ratio.toFixed(2));
    return `${columns.join("")}  of ${reference.server}: throughput ${throughput}, CPU ${cpu}, p99 ${p99}`;
  });

export const startLine = ({ idle, loaded, peak, server, startMillis }: StartFigures): string => {
  const megabytes = (bytes: number) => `${(bytes / 1e6).toFixed(0).padStart(4)} MB`;
  return (
    `  ${server.padEnd(12)}${startMillis.toFixed(0).padStart(7)} ms` +
    `  idle ${megabytes(idle)}  after asks ${megabytes(loaded)}  at most ${megabytes(peak)}`
  );
};
