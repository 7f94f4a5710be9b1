/**
 * Times and durations as arguments of commands.
 */
import { Option } from "effect";
import { Flag } from "effect/cli";
import { timeOf } from "../IsoTime.ts";

const units = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

/** Of a thousand years: so far from now every time is one that databases hold. */
const longest = 365_250 * units.d;

/** A duration such as `30d`, in milliseconds. */
export const durationOf = (text: string): Option.Option<number> => {
  const [, count, unit] = /^(\d{1,11})([smhdw])$/.exec(text) ?? [];
  const millis = Number(count) * units[unit as keyof typeof units];
  return millis <= longest ? Option.some(millis) : Option.none();
};

/** A time, or how long after the present one in milliseconds; before it, if `sign` is negative. */
const timeFrom = (text: string, sign: 1 | -1): Option.Option<(now: number) => Date> =>
  Option.orElse(
    Option.map(timeOf(text), (time) => () => time),
    () => Option.map(durationOf(text), (millis) => (now: number) => new Date(now + sign * millis)),
  );

/** What a time is, told the present one in milliseconds; `null` is never. */
export type Expiry = (now: number) => Date | null;

/** A time, how long from now on, or `never`. */
export const expiryOf = (text: string): Option.Option<Expiry> =>
  text === "never" ? Option.some(() => null) : timeFrom(text, 1);

/** A flag that says from when on: a time, or how long ago. */
export const sinceFlag = (name: string) =>
  Flag.String(name).pipe(
    Flag.filterMap(
      (text) => timeFrom(text, -1),
      () =>
        "Expected a date such as 2026-01-31, a time with its zone in ISO 8601, or 30d for that long ago",
    ),
    Flag.withMetavar("date|30d"),
  );
