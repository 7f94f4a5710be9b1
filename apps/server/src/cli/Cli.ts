/**
 * The command line.
 */
import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Effect, Logger, Stdio } from "effect";
import { CliOutput, Command } from "effect/cli";
import { audit } from "./commands/AuditCommand.ts";
import { chatbot } from "./commands/ChatbotCommand.ts";
import { chat } from "./commands/ChatCommand.ts";
import { chats } from "./commands/ChatsCommand.ts";
import { doctor } from "./commands/DoctorCommand.ts";
import { key } from "./commands/KeyCommand.ts";
import { migrate } from "./commands/MigrateCommand.ts";
import { provision } from "./commands/ProvisionCommand.ts";
import { serve } from "./commands/ServeCommand.ts";
import { usage } from "./commands/UsageCommand.ts";
import { workspace } from "./commands/WorkspaceCommand.ts";
import { version } from "../Version.ts";
import {
  exitCode,
  presenter,
  printError,
  printingErrors,
  redactKeys,
  wrongUsage,
} from "./Errors.ts";

export const command = Command.make("parley").pipe(
  Command.withDescription("A chatbot conversation service"),
  Command.withExamples([
    { command: "parley serve", description: "Serve with the settings of the environment" },
    { command: "parley key create --name web", description: "Create a key for the only chatbot" },
    { command: "parley doctor", description: "Check settings, database and models" },
    {
      command: "parley --completions bash >> ~/.bashrc",
      description: "Complete commands in the shell",
    },
  ]),
  Command.withSubcommands([
    serve,
    migrate,
    doctor,
    workspace,
    chatbot,
    key,
    provision,
    audit,
    chat,
    chats,
    usage,
  ]),
);

/** Other users of the machine can read arguments, and shells keep them. */
const exposesKey = (args: ReadonlyArray<string>) => args.some((arg) => redactKeys(arg) !== arg);

const refuseKey = Effect.andThen(
  printError({
    message:
      "An argument contains an API key, which others can read there: the command did nothing.",
    hint: 'name a key by its id, prl_<id>, or write it to standard input; "parley key revoke" ends an exposed key.',
  }),
  Effect.fail(wrongUsage([], "An argument contains an API key.")),
);

/** Runs the command of the process's arguments, and prints why it fails. */
export const parley: Effect.Effect<void, unknown, Command.Environment> = Stdio.Stdio.use(
  ({ args }) => args,
).pipe(
  Effect.flatMap((args) =>
    exposesKey(args) ? refuseKey : Command.runWith(command, { version })(args),
  ),
  printingErrors,
  Effect.provideService(CliOutput.Presenter, presenter),
  // Standard output is for results.
  Effect.provideService(Logger.LogToStderr, true),
);

/** Runs it as the process, which ends with its exit code. */
export const main = () =>
  parley.pipe(
    Effect.provide(NodeServices.layer),
    NodeRuntime.runMain({
      disableErrorReporting: true,
      teardown: (exit, onExit) => onExit(exitCode(exit)),
    }),
  );
