import { Equal } from "effect";

/**
 * Whether both are equal by structure. `Equal.equals` tells the same of rows, but hashes all of them first, and remembers
 * what it said of those that are changed later.
 */
export const alike = (one: unknown, other: unknown): boolean => {
  if (Array.isArray(one)) {
    return (
      Array.isArray(other) &&
      one.length === other.length &&
      // Places that were never set are looked at, too.
      Array.from(one).every((item, at) => alike(item, other[at]))
    );
  }
  if (!isPlain(one) || !isPlain(other)) return Equal.equals(one, other);
  const keys = Object.keys(one);
  return (
    keys.length === Object.keys(other).length &&
    keys.every((key) => Object.hasOwn(other, key) && alike(one[key], other[key]))
  );
};

const isPlain = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;
