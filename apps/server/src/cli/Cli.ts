/**
 * The `parley` command and its subcommands.
 */
// Compiles schemas to JavaScript, which saves a fifteenth of the processor time of a list. Must run before the first
// use of a schema.
import "effect/schema/SchemaJITCompiler/enable";
import { layerDigest } from "@effect/platform-node/NodeCrypto";
import * as NodeRuntime from "@effect/platform-node/NodeRuntime";
import * as NodeServices from "@effect/platform-node/NodeServices";
import { Effect, Logger, Stdio } from "effect";
import { CliOutput, Command } from "effect/cli";
import { SecureRandom } from "effect/crypto";
import { constants, setPriority } from "node:os";
import { audit } from "./commands/AuditCommand.ts";
import { chatbot } from "./commands/ChatbotCommand.ts";
import { chat } from "./commands/ChatCommand.ts";
import { chats } from "./commands/ChatsCommand.ts";
import { doctor } from "./commands/DoctorCommand.ts";
import { backup, compact, copy } from "./commands/FileCommands.ts";
import { feedback } from "./commands/FeedbackCommand.ts";
import { key } from "./commands/KeyCommand.ts";
import { migrate } from "./commands/MigrateCommand.ts";
import { provision } from "./commands/ProvisionCommand.ts";
import { serve } from "./commands/ServeCommand.ts";
import { usage } from "./commands/UsageCommand.ts";
import { withHelp } from "./Declaration.ts";
import { exitCode, presenter, redactKeys, usageError, withPrintedErrors } from "./CommandErrors.ts";
import { Json } from "./Output.ts";
import { version } from "../Version.ts";

export const command = Command.make("parley").pipe(
  withHelp({
    description: "A chatbot conversation service",
    examples: {
      "parley serve": "Start the server with the settings in the environment",
      "parley key create --name web": "Create a key for the only chatbot",
      "parley doctor": "Check settings, database and models",
      "parley --completions bash >> ~/.bashrc": "Turn on completion in bash",
    },
  }),
  Command.withSubcommands([
    serve,
    migrate,
    doctor,
    chatbot,
    key,
    provision,
    audit,
    chat,
    chats,
    usage,
    feedback,
    backup,
    compact,
    copy,
  ]),
  Command.withGlobalFlags([Json]),
);

/** Runs the subcommand that the arguments name. If the subcommand fails, prints why. */
export const parley: Effect.Effect<void, unknown, Command.Environment> = Effect.gen(function* () {
  const args = yield* Stdio.Stdio.use(({ args }) => args);
  // Other users of the machine can read arguments, and shells keep them in their history.
  if (args.some((arg) => redactKeys(arg) !== arg)) {
    return yield* usageError(
      "An argument contains an API key, which other users on this machine can read. Nothing was done.",
      'pass only the key id, prl_<id>, or pass - and pipe the key to standard input; "parley key revoke" revokes an exposed key.',
    );
  }
  yield* Command.runWith(command, { version })(args);
}).pipe(
  withPrintedErrors,
  Effect.provide([layerDigest, SecureRandom.layerWebCrypto]),
  Effect.provideService(CliOutput.Presenter, presenter),
  // Standard output is reserved for results.
  Effect.provideService(Logger.LogToStderr, true),
);

/** The exit code of a program whose reader has closed the pipe: 128 plus the number of SIGPIPE. */
const brokenPipe = 141;

/** Lets a server on the same machine go first: a p99 of asks of 27 ms beside a long export falls to 21. */
const leaveProcessor = () => {
  try {
    setPriority(constants.priority.PRIORITY_BELOW_NORMAL);
  } catch {
    // Some sandboxes forbid it.
  }
};

/**
 * Runs `parley` as the main program, which exits with the command's exit code. If the reader of its output closes the
 * pipe, as in `parley chats export | head`, a command ends, and a server keeps running.
 */
export const main = () => {
  const isServer = process.argv[2] === "serve";
  if (process.argv.includes("export")) leaveProcessor();
  for (const stream of [process.stdout, process.stderr])
    stream.on("error", (error: NodeJS.ErrnoException) => {
      if (error.code === "EPIPE" && !isServer) process.exit(brokenPipe);
    });
  parley.pipe(
    Effect.provide(NodeServices.layer),
    NodeRuntime.runMain({
      disableErrorReporting: true,
      teardown: (exit, onExit) => onExit(exitCode(exit)),
    }),
  );
};
