/**
 * Checks the metadata of entries.
 */
import { Schema } from "effect";
import type { Metadata } from "./Entry.ts";

/** The maximum size of an entry's metadata, as JSON text in UTF-8. */
const metadataBytes = 16 * 1024;

/** Whether `JSON` keeps the value as it is, and every store its strings. */
const isStorable = (value: unknown): boolean => {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() && !value.includes("\0");
    case "number":
      return Number.isFinite(value);
    case "boolean":
      return true;
    case "object":
      if (value === null) return true;
      if (Array.isArray(value)) return value.every(isStorable);
      return (
        [Object.prototype, null].includes(Object.getPrototypeOf(value)) &&
        Object.entries(value).every(([name, item]) => isStorable(name) && isStorable(item))
      );
    default:
      return false;
  }
};

/** Returns what is wrong with the value as an entry's metadata; `null` if nothing is. */
export const metadataProblem = (value: unknown): string | null => {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return "is not an object";
  try {
    if (!isStorable(value))
      return "contains a value that JSON cannot keep, NUL or a lone surrogate";
    const { length } = new TextEncoder().encode(JSON.stringify(value));
    return length > metadataBytes ? `has more than ${metadataBytes} bytes as JSON` : null;
  } catch {
    // The recursion has overflowed the stack.
    return "is nested too deeply";
  }
};

/** The metadata of an entry. */
export const MetadataObject = Schema.declare((_): _ is Metadata => true).check(
  Schema.makeFilter<Metadata>((value) => metadataProblem(value) ?? true),
);
