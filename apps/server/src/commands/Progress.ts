/**
 * How far a long command is.
 */
import { Console, Effect, Stdio } from "effect";

/** Prints `progress` once a second while the work goes on, on standard error, if that is a terminal. */
export const withProgress = <A, E, R>(
  work: Effect.Effect<A, E, R>,
  progress: () => string,
): Effect.Effect<A, E, R | Stdio.Stdio> =>
  Effect.gen(function* () {
    const { stderrIsTerminal } = yield* Stdio.Stdio;
    if (!(yield* stderrIsTerminal)) return yield* work;
    const line = Effect.suspend(() => Console.error(progress()));
    return yield* Effect.raceFirst(work, Effect.forever(Effect.delay(line, "1 second")));
  });
