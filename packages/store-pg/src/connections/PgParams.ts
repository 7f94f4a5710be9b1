/**
 * Parameters whose type the driver cannot infer, and a codec for strings that the driver's own codec changes.
 */
import { PgTypes } from "@effect/sql-pg";
import { Result } from "effect";

export type ArrayType = "bool" | "int4" | "int8" | "text" | "timestamptz";

/**
 * Builds an array parameter with one value for each item. A `timestamptz` value is a string from {@link time}, which
 * the statement must cast.
 */
export const array = <A>(items: ReadonlyArray<A>, type: ArrayType, value: (item: A) => unknown) =>
  Result.getOrThrow(
    PgTypes.array(items.map(value), PgTypes.OID[type === "timestamptz" ? "text" : type]),
  );

export const texts = (items: ReadonlyArray<string>) => array(items, "text", (item) => item);

/** Formats a `timestamptz` as a string: the driver's floating-point microseconds are inexact for distant centuries. */
export const time = (at: Date | null): string | null => at && at.toISOString();

/** SQL for the current time on the database's clock, in milliseconds since the Unix epoch. */
export const millisNow = "extract(epoch from clock_timestamp())::float8 * 1000";

/** Quotes a name for SQL and for `search_path`. */
export const quoteName = (name: string): string => `"${name.replaceAll('"', '""')}"`;

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

/** Replaces the driver's codec for `text`, which drops a leading U+FEFF from a string that contains U+FFFD. */
export const types: PgTypes.Registry = PgTypes.makeRegistry();
types.register<string>(
  PgTypes.OID.text,
  {
    encode: (value) => Result.succeed(encoder.encode(value)),
    write: (sink, value) => Result.succeed(sink.utf8(value)),
    decode: (bytes) => Result.succeed(decoder.decode(bytes)),
    read: (bytes, offset, size) =>
      Result.succeed(decoder.decode(bytes.subarray(offset, offset + size))),
  },
  { arrayOid: PgTypes.OID.textArray },
);
