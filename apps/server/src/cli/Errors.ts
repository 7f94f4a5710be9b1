/**
 * Errors for people: one line and a hint on standard error, and an exit code.
 */
import { describeCause } from "@parley/core";
import { Cause, Console, Effect, Exit, Runtime } from "effect";
import { CliError, CliOutput } from "effect/cli";

export interface Described {
  /** One line: the problem. */
  readonly message: string;
  /** One line: what to do about it. */
  readonly hint: string | null;
}

const checkDatabase = 'check that the database runs and its settings; "parley doctor" checks both.';
const listChatbots = '"parley chatbot list" shows the chatbots.';
const listKeys = '"parley key list" shows the keys, revoked ones too.';

const hints: Readonly<Record<string, string>> = {
  AnswerUnavailable: '"parley doctor" tries the language model and the moderation endpoint.',
  ChatbotNotFound: listChatbots,
  ChatbotTaken: '"parley chatbot set" changes that chatbot; a new one needs another name.',
  ChatNotFound: "without --chat a new chat begins.",
  DeclarationInvalid: "nothing was changed; docs/operations.md says what each setting may be.",
  DoctorFailed: "the findings say what to do.",
  EmbeddedFailed: "PARLEY_DATA_DIR names the directory of the database.",
  ImportRefused: '"parley chats import --help" says what can be imported.',
  KeyNotFound: listKeys,
  KnowledgeUnreadable: "PARLEY_KNOWLEDGE_DIR names a folder of Markdown and text files.",
  ListenFailed: "PARLEY_PORT, PARLEY_ASK_PORT and PARLEY_MANAGEMENT_PORT say where to listen.",
  NoDatabase: 'commands need the settings of the server; "parley doctor" checks them.',
  NoSuchChatbot: listChatbots,
  NoSuchKey: listKeys,
  NotAnswered: "each failure is printed where its answer would have been.",
  Overloaded: "try again in a moment.",
  PlatformError: "check the path and its permissions.",
  PostgresUnusable: checkDatabase,
  ProvisionInvalid: "nothing was changed; docs/provisioning.schema.json describes the file.",
  SettingsInvalid: 'docs/settings.md explains every setting; "parley doctor" checks them.',
  StorageUnavailable: checkDatabase,
  WorkspaceNotFound: '"parley workspace list" shows the workspaces.',
  WorkspaceTaken: "with --merge its chatbots move there, and the two become one.",
};

/** Messages of errors that have none for people. */
const messages: Readonly<Record<string, (error: any) => string>> = {
  PlatformError: (error) => {
    const { module, pathOrDescriptor } = error.reason;
    const stream = module === "Stdio" ? "Standard input or output" : "A file";
    return `${typeof pathOrDescriptor === "string" ? pathOrDescriptor : stream} cannot be used: ${describeCause(error)}`;
  },
  StorageUnavailable: ({ message }) => `Database unavailable: ${message}`,
};

export const describeError = (error: Error): Described => {
  const tag = String((error as { readonly _tag?: unknown })._tag);
  const message = toLine(messages[tag]?.(error) ?? (error.message || describeCause(error)));
  return {
    message: /[.!?]$/.test(message) ? message : `${message}.`,
    hint: hints[tag] ?? null,
  };
};

/** One line, without the secrets of API keys. */
export const toLine = (text: string): string => redactKeys(text.trim().replace(/\s*\n\s*/g, " "));

const key =
  /(?:prl_([0-9A-Za-z]{1,16})_[0-9A-Za-z]{12,}|\b([0-9A-Za-z]{12})_[0-9A-Za-z]{32})(?:_[0-9A-Za-z]*)?/g;

/** Leaves only the id of each API key in the text, also of a mistyped or cut one. */
export const redactKeys = (text: string): string => text.replace(key, "prl_$1$2_…");

/** Prints it on standard error. */
export const printError = ({ hint, message }: Described): Effect.Effect<void> =>
  Console.error(`parley: ${message}${hint === null ? "" : `\nhint: ${hint}`}`);

/** Prints why the effect failed: an error as its line and hint, a defect as it is. */
export const printingErrors = <A, E, R>(effect: Effect.Effect<A, E, R>): Effect.Effect<A, E, R> =>
  Effect.tapCause(effect, (cause) => {
    if (Cause.hasInterruptsOnly(cause)) return Effect.void;
    const error = Cause.squash(cause);
    // The presenter has printed it.
    if (CliError.isCliError(error)) return Effect.void;
    return Cause.hasDies(cause) || !(error instanceof Error)
      ? Effect.logError(cause)
      : printError(describeError(error));
  });

/** The command at this path, such as `["key", "create"]`, is used wrongly. Nothing was done. */
export const wrongUsage = (command: ReadonlyArray<string>, message: string) =>
  new CliError.ShowHelp({
    commandPath: ["parley", ...command],
    errors: [new CliError.ValidationError({ message })],
  });

/** The usual help; after wrong usage one line of error and a hint instead. */
export const presenter: CliOutput.Presenter = {
  present: (event) =>
    event._tag === "InvalidInvocation"
      ? printError({
          message: `${toLine(event.errors[0]!.message).replace(/\.$/, "")}.`,
          hint: `"${event.commandPath.join(" ")} --help" explains it, with examples.`,
        })
      : CliOutput.defaultPresenter.present(event),
};

/**
 * 0 for success, 2 for wrong usage, 1 for another failure, 130 for an interruption unless the command has set another.
 */
export const exitCode = (exit: Exit.Exit<unknown, unknown>): number => {
  if (Exit.isSuccess(exit)) return 0;
  if (Cause.hasInterruptsOnly(exit.cause)) return Number(process.exitCode ?? 130);
  const error = Cause.squash(exit.cause);
  const code = Runtime.getErrorExitCode(error);
  return CliError.isCliError(error) && code !== 0 ? 2 : code;
};
