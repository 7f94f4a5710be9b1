/**
 * Texts as they are: the driver's own codec drops U+FEFF at the beginning of one that holds U+FFFD. A database with
 * UTF8 sends no other bytes.
 */
import { PgTypes } from "@effect/sql-pg";
import { Result } from "effect";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { ignoreBOM: true });

const text: PgTypes.Codec<string> = {
  encode: (value) => Result.succeed(encoder.encode(value)),
  write: (sink, value) => Result.succeed(sink.utf8(value)),
  decode: (bytes) => Result.succeed(decoder.decode(bytes)),
  read: (bytes, offset, size) =>
    Result.succeed(decoder.decode(bytes.subarray(offset, offset + size))),
};

export const types: PgTypes.Registry = PgTypes.makeRegistry();
types.register(PgTypes.OID.text, text, { arrayOid: PgTypes.OID.textArray });
