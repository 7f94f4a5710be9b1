/**
 * The questions of `parley chat`: lines of a pipe, or of a person at a terminal.
 */
import { Effect, Option, Queue, Stdio, Stream, type Cause, type Scope } from "effect";
import { createInterface } from "node:readline";

export interface Questions {
  /** Whether a person types them, and can try again. */
  readonly fromPerson: boolean;
  /** The next line; none at the end. */
  readonly next: Effect.Effect<Option.Option<string>>;
  /** Waits until the person cancels the answer that is arriving. */
  readonly cancelled: Effect.Effect<void>;
}

/** The lines of standard input. They end where it cannot be read. */
export const fromPipe: Effect.Effect<Questions, never, Stdio.Stdio | Scope.Scope> = Effect.gen(
  function* () {
    const { stdin } = yield* Stdio.Stdio;
    const lines = stdin.pipe(Stream.decodeText, Stream.splitLines, Stream.rechunk(1));
    const pull = yield* Stream.toPull(lines);
    return {
      fromPerson: false,
      next: Effect.option(Effect.map(pull, ([line]) => line)),
      cancelled: Effect.never,
    };
  },
);

/** The lines that a person types. Ctrl-D ends them. Ctrl-C cancels an answer and deletes the typed text. */
export const fromTerminal = (
  input: NodeJS.ReadableStream,
  output: NodeJS.WritableStream,
): Effect.Effect<Questions, never, Scope.Scope> =>
  Effect.gen(function* () {
    const lines = yield* Queue.unbounded<string, Cause.Done>();
    let cancel: (() => void) | null = null;
    const terminal = yield* Effect.acquireRelease(
      Effect.sync(() => createInterface({ input, output, terminal: true, prompt: "> " })),
      (terminal) => Effect.sync(() => terminal.close()),
    );
    terminal.on("line", (line) => Queue.offerUnsafe(lines, line));
    terminal.on("close", () => Queue.endUnsafe(lines));
    terminal.on("SIGINT", () => {
      terminal.write(null, { ctrl: true, name: "e" });
      terminal.write(null, { ctrl: true, name: "u" });
      if (cancel !== null) return cancel();
      output.write("\n(Ctrl-D ends)\n");
      terminal.prompt();
    });
    return {
      fromPerson: true,
      next: Effect.andThen(
        Effect.sync(() => terminal.prompt(true)),
        Effect.option(Queue.take(lines)),
      ),
      cancelled: Effect.callback<void>((resume) => {
        cancel = () => resume(Effect.void);
        return Effect.sync(() => (cancel = null));
      }),
    };
  });
