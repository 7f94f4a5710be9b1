/**
 * How far a long command is, told on a terminal.
 */
import { Console, Duration, Effect, Stdio } from "effect";

const interval = Duration.millis(500);

/** Tells what `progress` says on standard error while `effect` runs, if that is a terminal. */
export const withProgress = <A, E, R, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  progress: Effect.Effect<string, E2, R2>,
): Effect.Effect<A, E, R | R2 | Stdio.Stdio> =>
  Effect.gen(function* () {
    const { stderrIsTerminal } = yield* Stdio.Stdio;
    if (!(yield* stderrIsTerminal)) return yield* effect;
    const tell = Effect.ignore(Effect.flatMap(progress, (text) => Console.error(text)));
    return yield* Effect.raceFirst(effect, Effect.forever(Effect.delay(tell, interval)));
  });
