/**
 * Parameters whose type the driver cannot tell from their values.
 */
import { PgTypes } from "@effect/sql-pg";
import { Result } from "effect";

export type ArrayType = "bool" | "int4" | "int8" | "text";

/** One value of each item, as an array of the type; also when all are null. */
export const array = <A>(items: ReadonlyArray<A>, type: ArrayType, value: (item: A) => unknown) =>
  Result.getOrThrow(PgTypes.array(items.map(value), PgTypes.OID[type]));

export const texts = (items: ReadonlyArray<string>) => array(items, "text", (item) => item);

/** The first that PostgreSQL writes without an era. */
const earliest = new Date("0001-01-01T00:00:00.000Z");

/**
 * A `timestamptz`, as text: the driver counts microseconds in floating point, which some centuries away are not exact.
 * No chat is older than the year 1.
 */
export const time = (at: Date | null): string | null =>
  at === null ? null : (at < earliest ? earliest : at).toISOString().replace(/^\+0*/, "");

/** One time of each item, to be cast to `timestamptz[]`. */
export const times = <A>(items: ReadonlyArray<A>, at: (item: A) => Date | null) =>
  array(items, "text", (item) => time(at(item)));

/** An int8 from a count that may not be known. */
export const big = (value: number | undefined): bigint | null =>
  value === undefined ? null : BigInt(value);

/** The search path that leads to a schema alone: its name, quoted. */
export const searchPathOf = (schema: string): string => `"${schema.replaceAll('"', '""')}"`;
