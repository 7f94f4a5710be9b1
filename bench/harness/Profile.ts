/**
 * Where the time went, according to a CPU profile.
 */
import { readFileSync } from "node:fs";

interface CpuProfile {
  readonly nodes: ReadonlyArray<{
    readonly id: number;
    readonly callFrame: {
      readonly functionName: string;
      readonly url: string;
      readonly lineNumber: number;
    };
  }>;
  /** Microseconds on the monotonic clock, as `process.hrtime` counts them. */
  readonly startTime: number;
  readonly samples: ReadonlyArray<number>;
  readonly timeDeltas: ReadonlyArray<number>;
}

/** The current time in microseconds, on the clock that profiles use. */
export const profileClock = (): number => Number(process.hrtime.bigint() / 1000n);

/** Returns lines about the functions with the most self time between two moments. */
export const topFunctions = (
  file: string,
  from: number,
  to: number,
  most: number,
): ReadonlyArray<string> => {
  const profile: CpuProfile = JSON.parse(readFileSync(file, "utf8"));
  const places = new Map(
    profile.nodes.map(({ callFrame: { functionName, lineNumber, url }, id }) => {
      const path = url.replace(/^file:\/\//, "").replace(/^.*\/node_modules\//, "");
      const where = path === "" ? "" : `  ${path.split("/").slice(-4).join("/")}:${lineNumber + 1}`;
      return [id, `${functionName || "(anonymous)"}${where}`];
    }),
  );
  const micros = new Map<string, number>();
  let now = profile.startTime;
  for (const [i, id] of profile.samples.entries()) {
    // A sample holds until the next one is taken.
    now += profile.timeDeltas[i]!;
    if (now < from || now > to) continue;
    const place = places.get(id)!;
    micros.set(place, (micros.get(place) ?? 0) + (profile.timeDeltas[i + 1] ?? 0));
  }
  const all = [...micros.values()].reduce((sum, time) => sum + time, 0);
  return [...micros]
    .toSorted(([, a], [, b]) => b - a)
    .slice(0, most)
    .map(([place, time]) => `${((100 * time) / all).toFixed(1).padStart(5)} %  ${place}`);
};
