/**
 * Checks the metadata of entries.
 */
import { Schema } from "effect";
import type { Metadata } from "./Entry.ts";
import { UserRef } from "./Text.ts";

/** The maximum size of an entry's metadata, as JSON text in UTF-8. */
const metadataBytes = 16 * 1024;

/** The maximum nesting of an entry's metadata. Much deeper values overflow the stack of some readers, which copy them. */
const metadataLevels = 100;

/** Whether `JSON` keeps the value as it is, every store keeps its strings, and it has at most so many levels. */
const isStorable = (value: unknown, levels: number): boolean => {
  switch (typeof value) {
    case "string":
      return value.isWellFormed() && !value.includes("\0");
    case "number":
      return Number.isFinite(value);
    case "boolean":
      return true;
    case "object":
      if (value === null) return true;
      if (levels === 0) return false;
      if (Array.isArray(value)) return value.every((item) => isStorable(item, levels - 1));
      return (
        [Object.prototype, null].includes(Object.getPrototypeOf(value)) &&
        Object.entries(value)
          .flat()
          .every((item) => isStorable(item, levels - 1))
      );
    default:
      return false;
  }
};

/** Returns what is wrong with the value as an entry's metadata; `null` if nothing is. */
export const metadataProblem = (value: unknown): string | null => {
  if (typeof value !== "object" || value === null || Array.isArray(value))
    return "is not an object";
  if (!isStorable(value, metadataLevels))
    return `contains a value that JSON cannot keep, NUL or a lone surrogate, or has more than ${metadataLevels} levels`;
  const { length } = new TextEncoder().encode(JSON.stringify(value));
  return length > metadataBytes ? `has more than ${metadataBytes} bytes as JSON` : null;
};

/** Like {@link metadataProblem}, for an entry that a client posts, whose `author` is a string of at most 60 code points. */
export const postMetadataProblem = (value: unknown): string | null => {
  const problem = metadataProblem(value);
  if (problem !== null) return problem;
  const { author } = value as Metadata;
  return author === undefined || Schema.is(UserRef)(author)
    ? null
    : "has an `author` that is not a string of at most 60 characters";
};

const objectWithout = (problemOf: (value: unknown) => string | null) =>
  Schema.declare((_): _ is Metadata => true).check(
    Schema.makeFilter<Metadata>((value) => problemOf(value) ?? true),
  );

/** The metadata of an entry. */
export const MetadataObject = objectWithout(metadataProblem);

/** The metadata of a posted entry. */
export const PostMetadata = objectWithout(postMetadataProblem);
