/**
 * A check is a named effect. It needs no test runner: run it and see whether it fails.
 */
import { Data, Effect, Equal, Result } from "effect";

/** A check of one promise that a port makes. It succeeds if the store keeps the promise. */
export interface Check<R> {
  /** The promise, as a sentence. */
  readonly name: string;
  readonly run: Effect.Effect<void, unknown, R>;
}

/** The failure of a check: the store broke the promise. */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{
  /** The name of the compared value. */
  readonly what: string;
  readonly expected: unknown;
  readonly actual: unknown;
  readonly cause?: unknown;
}> {
  override get message(): string {
    // A value may have changed since the comparison.
    const { actual, expected, path } = firstDifference(this.actual, this.expected) ?? {
      ...this,
      path: "",
    };
    const where = path === "" ? this.what : `${this.what}, at ${path}`;
    return `${where}: expected ${show(expected)}, but got ${show(actual)}`;
  }
}

/** Names the check and turns any failure of its calls into a {@link CheckFailed}. */
export const check = <E extends Effect.Effect<unknown, unknown, unknown>>(
  name: string,
  body: () => Generator<E, unknown, never>,
): Check<Effect.Services<E>> => ({
  name,
  run: Effect.mapError(Effect.asVoid(Effect.gen(body)), (cause) =>
    cause instanceof CheckFailed
      ? cause
      : new CheckFailed({ what: "a call", expected: "success", actual: cause, cause }),
  ) as Effect.Effect<void, CheckFailed, Effect.Services<E>>,
});

/** Fails unless the values are structurally equal. */
export const same = (
  what: string,
  actual: unknown,
  expected: unknown,
): Effect.Effect<void, CheckFailed> =>
  firstDifference(actual, expected) === null
    ? Effect.void
    : Effect.fail(new CheckFailed({ what, expected, actual }));

/** Fails unless the effect fails with the `expected` error or, if `expected` is a tag, with any error with that tag. */
export const failsWith = <A, E extends { readonly _tag: string }, R>(
  what: string,
  expected: E | E["_tag"],
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<void, CheckFailed, R> =>
  Effect.flatMap(Effect.result(effect), (result) =>
    Result.isSuccess(result)
      ? same(what, "success", expected)
      : same(what, typeof expected === "string" ? result.failure._tag : result.failure, expected),
  );

/**
 * Finds the first, innermost place where two values differ; `null` if they are structurally equal. `Equal.equals`
 * hashes each value first, which is too slow for long lists of rows.
 */
const firstDifference = (
  actual: unknown,
  expected: unknown,
  path = "",
): { readonly actual: unknown; readonly expected: unknown; readonly path: string } | null => {
  const areLists = Array.isArray(actual) && Array.isArray(expected);
  if (actual instanceof Error && expected instanceof Error)
    return firstDifference(errorFields(actual), errorFields(expected), path);
  if (!areLists && !(isPlain(actual) && isPlain(expected)))
    return Equal.equals(actual, expected) ? null : { actual, expected, path };
  const [one, other] = [actual, expected] as ReadonlyArray<Record<string, unknown>>;
  for (const key of Object.keys({ ...other, ...one })) {
    const at = path + (areLists ? `[${key}]` : path === "" ? key : `.${key}`);
    const difference =
      Object.hasOwn(one!, key) === Object.hasOwn(other!, key)
        ? firstDifference(one![key], other![key], at)
        : { actual: one![key], expected: other![key], path: at };
    if (difference !== null) return difference;
  }
  // `Object.keys` skips the holes of a sparse array.
  return areLists && actual.length !== expected.length ? { actual, expected, path } : null;
};

/** Returns an error's tag and data. The other fields depend on the engine: on Bun, errors own `line` and `column`. */
export const errorFields = (error: object): Readonly<Record<string, unknown>> =>
  Object.fromEntries(
    Object.entries(error).filter(
      ([field]) => !["message", "stack", "line", "column", "sourceURL"].includes(field),
    ),
  );

const isPlain = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && Object.getPrototypeOf(value) === Object.prototype;

const show = (value: unknown): string => {
  try {
    return JSON.stringify(value)?.slice(0, 2000) ?? "undefined";
  } catch {
    // A database driver's error may contain a circular reference.
    return String(value);
  }
};
