/**
 * Errors as people see them: a one-line message and a hint on standard error, and an exit code.
 */
import { describeCause } from "@parley/core/ports";
import { Cause, Console, Data, Effect, Exit, Runtime } from "effect";
import { CliError, CliOutput } from "effect/cli";

interface ErrorText {
  /** The problem, in one line. */
  readonly message: string;
  /** What to do about the problem, in one line. */
  readonly hint: string;
}

/** An error that a command itself raises. */
export class CommandFailed extends Data.TaggedError("CommandFailed")<
  ErrorText & { readonly exitCode?: 1 | 2 }
> {
  override readonly [Runtime.errorExitCode] = this.exitCode ?? 1;
}

export const listChatbots = '"parley chatbot list" shows the chatbots.';

export const usageError = (message: string, hint: string) =>
  new CommandFailed({ message, hint, exitCode: 2 });

/** The error of a command that changes fields, if no flag specifies a change. */
export const noChanges = usageError(
  "No changes were specified.",
  "--help lists the fields that can be changed.",
);

const hints: Readonly<Record<string, string>> = {
  ChatbotNotFound: listChatbots,
  ChatbotTaken: listChatbots,
  ChatNotFound: '"parley chats list" shows the chats.',
  ArgumentInvalid: "nothing was changed; docs/operations.md describes the valid values.",
  ImportRefused: 'import the output of "parley chats export" into a chatbot without chats.',
  KeyNotFound: '"parley key list" lists all keys, including revoked ones.',
  ListenFailed:
    "PARLEY_HOST, PARLEY_PORT, PARLEY_ASK_PORT and PARLEY_MANAGEMENT_PORT set the addresses.",
  Overloaded: "try again in a moment.",
  ProvisionInvalid: "nothing was changed; docs/provisioning.schema.json describes the file.",
};

export const describeError = (error: Error): ErrorText => {
  const { _tag = "", hint } = error as { readonly _tag?: string; readonly hint?: string };
  const problem = _tag === "StorageUnavailable" ? "Database unavailable: " : "";
  const message = toLine(
    problem + (_tag === "PlatformError" ? describeCause(error) : error.message || String(error)),
  );
  return {
    message: /[.!?]$/.test(message) ? message : `${message}.`,
    hint:
      hint ??
      hints[_tag] ??
      '"parley doctor" checks settings, database, documents and models; docs/settings.md explains every setting.',
  };
};

/** Joins the lines of a string, and redacts API keys. */
export const toLine = (text: string): string => redactKeys(text.trim().replace(/\s*\n\s*/g, " "));

const key =
  /(?:prl_([0-9A-Za-z]{1,16})_[0-9A-Za-z]{12,}|\b([0-9A-Za-z]{12})_[0-9A-Za-z]{32})(?:_[0-9A-Za-z]*)?/g;

/** Reduces each API key in a string, even a mistyped or truncated key, to its id. */
export const redactKeys = (text: string): string => text.replace(key, "prl_$1$2_…");

/** How the user runs `parley`: from a clone, with npx, or as an installed command. */
export const command = import.meta.url.endsWith(".ts")
  ? "npx --yes pnpm@12 --silent parley"
  : process.env["npm_command"] === "exec"
    ? "npx parley"
    : (process.argv[1] ?? "parley");

/** Rewrites the quoted commands in a string so that the user can run them. */
export const withOwnCommand = (text: string): string => text.replaceAll('"parley ', `"${command} `);

export const printError = ({ hint, message }: ErrorText): Effect.Effect<void> =>
  Console.error(withOwnCommand(`parley: ${message}\nhint: ${hint}`));

/** Prints why the effect failed: the message and hint of an error, or the whole cause of a defect. */
export const withPrintedErrors = <A, E, R>(
  effect: Effect.Effect<A, E, R>,
): Effect.Effect<A, E, R> =>
  Effect.tapCause(effect, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void;
    const error = Cause.squash(cause);
    // The presenter has already printed this error.
    if (CliError.isCliError(error)) return Effect.void;
    return Cause.hasDies(cause) || !(error instanceof Error)
      ? Effect.logError(cause)
      : printError(describeError(error));
  });

/** Rewrites the examples of a help text so that the user can run them. */
const withCommand = (help: CliOutput.Presenter.Help): CliOutput.Presenter.Help => ({
  ...help,
  helpDoc: {
    ...help.helpDoc,
    examples: (help.helpDoc.examples ?? []).map((example) => ({
      ...example,
      command: example.command.replace(/(?<=^|\$\(|\| )parley /, `${command} `),
    })),
  },
});

/** Shows the usual help or, after incorrect usage, only the error and a hint. */
export const presenter: CliOutput.Presenter = {
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? printError({
          message: `${toLine(event.errors[0]!.message).replace(/\.$/, "")}.`,
          hint: `"${event.commandPath.join(" ")} --help" explains the command, with examples.`,
        })
      : CliOutput.defaultPresenter.present(event._tag === "Help" ? withCommand(event) : event),
};

/**
 * Returns 0 for success, 2 for incorrect usage, 1 for any other failure and, for an interruption, the exit code that
 * the command has set, or 130.
 */
export const exitCode = (exit: Exit.Exit<unknown, unknown>): number => {
  if (Exit.isSuccess(exit)) return 0;
  if (Cause.hasInterruptsOnly(exit.cause)) return Number(process.exitCode ?? 130);
  const error = Cause.squash(exit.cause);
  const code = Runtime.getErrorExitCode(error);
  return CliError.isCliError(error) && code !== 0 ? 2 : code;
};
