/**
 * Parameters whose type the driver cannot tell from their values.
 */
import { PgTypes } from "@effect/sql-pg";
import { Result } from "effect";

/** One value of each item, as an array of the type; also when all are null. */
export const array = <A>(
  items: ReadonlyArray<A>,
  type: "bool" | "int4" | "int8" | "text" | "timestamptz",
  value: (item: A) => unknown,
) => Result.getOrThrow(PgTypes.array(items.map(value), PgTypes.OID[type]));

/** An int8 from a count that may not be known. */
export const big = (value: number | undefined): bigint | null =>
  value === undefined ? null : BigInt(value);
