/**
 * How far a long command is, told on a terminal.
 */
import { Console, Duration, Effect, Stdio } from "effect";

const interval = Duration.millis(500);

/** Tells what `progress` says, as often as that is new, on standard error while `effect` runs, if that is a terminal. */
export const withProgress = <A, E, R, E2, R2>(
  effect: Effect.Effect<A, E, R>,
  progress: Effect.Effect<string, E2, R2>,
): Effect.Effect<A, E, R | R2 | Stdio.Stdio> =>
  Effect.gen(function* () {
    const { stderrIsTerminal } = yield* Stdio.Stdio;
    if (!(yield* stderrIsTerminal)) return yield* effect;
    let told = "";
    const tell = Effect.ignore(
      Effect.flatMap(progress, (text) => {
        const isNew = text !== told;
        told = text;
        return isNew ? Console.error(text) : Effect.void;
      }),
    );
    return yield* Effect.raceFirst(effect, Effect.forever(Effect.delay(tell, interval)));
  });
