/**
 * Reads the lines that a person types at the terminal, with readline's key bindings.
 */
import { Data, Effect, Stream } from "effect";
import { createInterface } from "node:readline";

/** The person pressed Ctrl-C during a `stoppable` effect. */
export class Stopped extends Data.TaggedError("Stopped") {}

export interface Prompt {
  /** Shows the prompt, and resumes reading. */
  readonly show: Effect.Effect<void>;
  /** The lines typed. The stream ends on Ctrl-D, and on Ctrl-C unless a `stoppable` effect is running. */
  readonly lines: Stream.Stream<string>;
  /** Lets Ctrl-C interrupt the effect, which then fails with `Stopped`. */
  readonly stoppable: <A, E, R>(effect: Effect.Effect<A, E, R>) => Effect.Effect<A, E | Stopped, R>;
}

/** Reads lines from the terminal until the scope closes. The terminal's echo goes to standard error. */
export const makePrompt = Effect.gen(function* () {
  const readline = yield* Effect.acquireRelease(
    Effect.sync(() =>
      createInterface({ input: process.stdin, output: process.stderr, prompt: "> " }),
    ),
    (readline) => Effect.sync(() => readline.close()),
  );
  let isClosed = false;
  readline.on("close", () => (isClosed = true));
  const leave = () => readline.close();
  let interrupt = leave;
  readline.on("SIGINT", () => interrupt());
  const stop = Effect.callback<never, Stopped>((resume) => {
    interrupt = () => resume(new Stopped());
  }).pipe(Effect.ensuring(Effect.sync(() => void (interrupt = leave))));
  const prompt: Prompt = {
    // The person may have pressed Ctrl-D during an answer.
    show: Effect.sync(() => {
      if (!isClosed) readline.prompt(true);
    }),
    lines: Stream.orDie(Stream.fromAsyncIterable(readline, (error) => error)),
    stoppable: (effect) => Effect.raceFirst(effect, stop),
  };
  return prompt;
});
