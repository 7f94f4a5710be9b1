/**
 * Times and durations as people write them.
 */
import { Option } from "effect";

const units = { s: 1000, m: 60_000, h: 3_600_000, d: 86_400_000, w: 604_800_000 } as const;

/** A duration such as `30d`, in milliseconds. */
export const durationOf = (text: string): Option.Option<number> => {
  const parts = /^(\d{1,9})([smhdw])$/.exec(text);
  return parts === null
    ? Option.none()
    : Option.some(Number(parts[1]) * units[parts[2] as keyof typeof units]);
};

/** What a time is, told the present one in milliseconds; `null` is never. */
export type Expiry = (now: number) => Date | null;

const iso = /^\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/;

/** A date (its beginning in UTC), a time with its zone, how long from now on, or `never`. */
export const expiryOf = (text: string): Option.Option<Expiry> => {
  if (text === "never") return Option.some(() => null);
  const date = new Date(iso.test(text) ? text : Number.NaN);
  if (!Number.isNaN(date.getTime())) return Option.some(() => date);
  return Option.map(durationOf(text), (millis) => (now) => new Date(now + millis));
};
