/**
 * The command that the process was started with, known before all that takes time to load.
 */

/** Before it may stand the level of the log; `undefined` if there is none. */
export const commandOf = (argv: ReadonlyArray<string>): string | undefined =>
  argv.slice(2).find((arg, at, args) => !arg.startsWith("-") && args[at - 1] !== "--log-level");

/** Whether this process is a server. */
export const isServer = commandOf(process.argv) === "serve";
