/**
 * Times as people write them.
 */
import { Option } from "effect";

/** A date, or a time with its zone. */
export const isoTime = /^(\d{4}-\d\d-\d\d)(T\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:\d\d))?$/u;

/** A date (its beginning in UTC) or a time with its zone. */
export const timeOf = (text: string): Option.Option<Date> => {
  const [, date] = isoTime.exec(text) ?? [];
  const [time, day] = [new Date(text), new Date(date ?? Number.NaN)];
  if (Number.isNaN(time.getTime()) || Number.isNaN(day.getTime())) return Option.none();
  // No 31st of February, which would be taken for the 3rd of March.
  return day.toISOString().startsWith(date!) ? Option.some(time) : Option.none();
};
