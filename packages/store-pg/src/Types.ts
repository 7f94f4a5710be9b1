/**
 * Texts as they are: the driver's own codec drops U+FEFF at the beginning of one that holds U+FFFD.
 */
import { PgTypes } from "@effect/sql-pg";
import { Result } from "effect";

const encoder = new TextEncoder();
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

const decode = (bytes: Uint8Array) =>
  Result.try({
    try: () => decoder.decode(bytes),
    catch: () => new PgTypes.CodecError({ message: "Invalid UTF-8 in a text" }),
  });

const text: PgTypes.Codec<string> = {
  encode: (value) => Result.succeed(encoder.encode(value)),
  write: (sink, value) => Result.succeed(sink.utf8(value)),
  decode,
  read: (bytes, offset, size) => decode(bytes.subarray(offset, offset + size)),
};

export const types: PgTypes.Registry = PgTypes.makeRegistry();
types.register(PgTypes.OID.text, text, { arrayOid: PgTypes.OID.textArray });
