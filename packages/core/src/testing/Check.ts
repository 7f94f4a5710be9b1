/**
 * A check is a named effect: it needs no test runner, only somebody who runs it and looks whether it
 * failed.
 */
import { Data, Effect, Equal, Exit } from "effect";

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
}> {
  override get message(): string {
    return `${this.what}: expected ${show(this.expected)}, but got ${show(this.actual)}`;
  }
}

const show = (value: unknown): string => JSON.stringify(value)?.slice(0, 2000) ?? String(value);

export const check = <E, R>(name: string, run: () => Effect.Effect<void, E, R>): Check<R> => ({
  name,
  run: Effect.suspend(run),
});

/** Fails unless both are equal by structure. */
export const same = (
  what: string,
  actual: unknown,
  expected: unknown,
): Effect.Effect<void, CheckFailed> =>
  Equal.equals(actual, expected)
    ? Effect.void
    : Effect.fail(new CheckFailed({ what, expected, actual }));

/** Fails unless the effect fails with the tag. */
export const failsWith = <A, E extends { readonly _tag: string }, R>(
  what: string,
  tag: E["_tag"],
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<void, CheckFailed, R> =>
  Effect.flatMap(Effect.exit(effect), (exit) => {
    const actual = Exit.isFailure(exit)
      ? exit.cause.reasons.map((reason) =>
          reason._tag === "Fail" ? reason.error._tag : reason._tag,
        )
      : "success";
    return same(what, actual, [tag]);
  });
