/**
 * What the command line says when it is used wrongly: one line and a hint, on standard error.
 */
import { Effect } from "effect";
import { CliError, CliOutput } from "effect/cli";
import { report } from "../Report.ts";
import { line } from "../Told.ts";

/** The command at this path, such as `["key", "create"]`, cannot be meant so. Nothing was done. */
export const wrongUsage = (command: ReadonlyArray<string>, message: string) =>
  new CliError.ShowHelp({
    commandPath: ["parley", ...command],
    errors: [new CliError.ValidationError({ message })],
  });

/** Help as it is usual, but after a mistake only where to find it. */
export const presenter: CliOutput.Presenter = {
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? Effect.forEach(
          event.errors.slice(0, 1),
          ({ message }) =>
            report({
              message: `${line(message).replace(/\.$/, "")}.`,
              hint: `"${event.commandPath.join(" ")} --help" explains it, with examples.`,
            }),
          { discard: true },
        )
      : CliOutput.defaultPresenter.present(event),
};
