/**
 * A check is a named effect: it needs no test runner, only somebody who runs it and looks whether it
 * failed.
 */
import { Data, Effect, Result } from "effect";
import { alike } from "./Alike.ts";

/** One promise of a port. It succeeds when the store keeps it. */
export interface Check<R> {
  /** What is promised, as a sentence. */
  readonly name: string;
  readonly run: Effect.Effect<void, unknown, R>;
}

/** The store broke the promise. */
export class CheckFailed extends Data.TaggedError("CheckFailed")<{
  readonly what: string;
  readonly expected: unknown;
  readonly actual: unknown;
  /** What a call failed with that should have succeeded. */
  readonly cause?: unknown;
}> {
  constructor(failed: {
    readonly what: string;
    readonly expected: unknown;
    readonly actual: unknown;
    readonly cause?: unknown;
  }) {
    super(failed);
    const { actual, expected, path } = firstDifference(failed.actual, failed.expected);
    const where = path === "" ? failed.what : `${failed.what}, at ${path}`;
    // Runners that print both values as texts do so before they look at the message.
    this.message = `${where}: expected ${show(expected)}, but got ${show(actual)}`;
  }

  /** What Node prints: the values as a whole would hide the difference. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    return `CheckFailed: ${this.message}`;
  }
}

/** The innermost place where two values that are not equal differ. */
const firstDifference = (
  actual: unknown,
  expected: unknown,
  path = "",
): { readonly actual: unknown; readonly expected: unknown; readonly path: string } => {
  if (
    isTree(actual) &&
    isTree(expected) &&
    Array.isArray(actual) === Array.isArray(expected) &&
    actual["_tag"] === expected["_tag"]
  ) {
    for (const key of Object.keys({ ...expected, ...actual })) {
      if (alike(actual[key], expected[key])) continue;
      const step = Array.isArray(actual) ? `[${key}]` : path === "" ? key : `.${key}`;
      return firstDifference(actual[key], expected[key], path + step);
    }
  }
  return { actual, expected, path };
};

const isTree = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !(value instanceof Date);

const show = (value: unknown): string => {
  try {
    const text = JSON.stringify(value, (_, one) => (typeof one === "bigint" ? `${one}n` : one));
    return text?.slice(0, 2000) ?? "nothing";
  } catch {
    // A driver's error may hold itself.
    return String(value);
  }
};

export const check = <E, R>(name: string, run: () => Effect.Effect<void, E, R>): Check<R> => ({
  name,
  run: Effect.catch(Effect.suspend(run), (error) =>
    Effect.fail(
      error instanceof CheckFailed
        ? error
        : new CheckFailed({
            what: "what comes of a call",
            expected: "success",
            actual: error,
            cause: error,
          }),
    ),
  ),
});

/** Fails unless both are equal by structure. */
export const same = (
  what: string,
  actual: unknown,
  expected: unknown,
): Effect.Effect<void, CheckFailed> =>
  alike(actual, expected) ? Effect.void : Effect.fail(new CheckFailed({ what, expected, actual }));

/** Fails unless the effect fails with that error, or with any of that tag. */
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
