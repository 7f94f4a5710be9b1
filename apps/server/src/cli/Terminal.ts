/**
 * The terminal of a conversation: lines that a person types, and answers in Markdown that arrive in pieces.
 */
import { Console, Effect, Stream } from "effect";
import { CliOutput } from "effect/cli";
import { createInterface } from "node:readline";

/** Reads lines from the terminal until the scope closes. The terminal's echo goes to standard error. */
export const makePrompt = Effect.gen(function* () {
  const readline = createInterface({ input: process.stdin, output: process.stderr });
  const leave = () => readline.close();
  yield* Effect.addFinalizer(() => Effect.sync(leave));
  let interrupt = leave;
  readline.on("SIGINT", () => interrupt());
  const stop = Effect.callback<Effect.Effect<void>>((resume) => {
    interrupt = () => resume(Effect.succeed(Console.error("Stopped.")));
  }).pipe(Effect.ensuring(Effect.sync(() => void (interrupt = leave))));
  return {
    /** The lines typed. The stream ends on Ctrl-D, and on Ctrl-C unless a `stoppable` effect is running. */
    lines: Stream.orDie(Stream.fromAsyncIterable(readline, (error) => error)),
    // Throws if the person has pressed Ctrl-D during an answer.
    show: Effect.ignore(Effect.try(() => readline.prompt(true))),
    /** Lets Ctrl-C interrupt the effect. */
    stoppable: <A, E, R>(effect: Effect.Effect<A, E, R>) =>
      Effect.flatten(Effect.raceFirst(Effect.as(effect, Effect.void), stop)),
  };
});

/** The first word of a line that no paragraph continues on, and of one after which none continues. */
const [startsBlock, isLine] = [/^([-*+>]$|#|\||\d+[.)]$|```)/, /^(#|\||```)/];

/**
 * Joins the lines of a paragraph, breaks lines between words, and leaves code as it is; without a width, leaves all as
 * it is. `push` adds a piece of text, and `end` sets the rest. Both return what to print next.
 */
export const makeTypesetter = (width: number | undefined) => {
  let [rest, space, firstWord, column, isCode] = ["", "", "", 0, false];
  const setToken = (token: string): string => {
    if (width === undefined) return token;
    if (/^\s/.test(token)) return ((space = token), "");
    if (firstWord === "" || space.includes("\n")) {
      const isBroken = isCode || startsBlock.test(token) || isLine.test(firstWord);
      if (firstWord === "" || isBroken || /\n\s*\n| {2}\n/.test(space)) firstWord = token;
      else space = " ";
      if (token.startsWith("```")) isCode = !isCode;
    }
    const end = column + CliOutput.displayWidth(space + token);
    if (end > (width || 80) && !isCode && column > 0 && !space.includes("\n")) space = "\n";
    const text = space + token;
    const line = text.slice(text.lastIndexOf("\n") + 1);
    column = line === text ? end : CliOutput.displayWidth(line);
    space = "";
    return text;
  };
  const push = (piece: string): string => {
    const tokens = (rest + piece).match(/\s+|\S+/g) ?? [];
    rest = tokens.pop() ?? "";
    return tokens.map(setToken).join("");
  };
  return { push, end: () => `${setToken(rest)}\n` };
};
