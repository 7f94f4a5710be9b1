/**
 * The command line.
 */
import { Effect, Logger, Stdio } from "effect";
import { CliOutput, Command } from "effect/cli";
import { report } from "../Report.ts";
import { withoutKeys } from "../WithoutKeys.ts";
import { audit } from "./Audit.ts";
import { chat } from "./Chat.ts";
import { chatbot } from "./Chatbot.ts";
import { chats } from "./Chats.ts";
import { doctor } from "./Doctor.ts";
import { key } from "./Key.ts";
import { migrate } from "./Migrate.ts";
import { provision } from "./Provision.ts";
import { serve } from "./Serve.ts";
import { usage } from "./Usage.ts";
import { workspace } from "./Workspace.ts";
import { presenter, wrongUsage } from "./WrongUsage.ts";

/** Every command there is. */
export const command = Command.make("parley").pipe(
  Command.withDescription("A chatbot conversation service"),
  Command.withExamples([
    { command: "parley serve", description: "Serve with the settings of the environment" },
    { command: "parley key create --name web", description: "Make a key for the only chatbot" },
    { command: "parley doctor", description: "See whether everything is in order" },
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

/** Other users of the machine can read the arguments, and the shell keeps them. */
const exposesKey = (args: ReadonlyArray<string>) => args.some((arg) => withoutKeys(arg) !== arg);

export const parley: Effect.Effect<void, unknown, Command.Environment> = Stdio.Stdio.use(
  ({ args }) => args,
).pipe(
  Effect.flatMap((args) =>
    exposesKey(args)
      ? Effect.andThen(
          report({
            message: "An argument holds an API key, which others can see there: nothing was done.",
            hint: 'name a key by its id, prl_<id>, or write it to standard input; "parley key revoke" ends one that was seen.',
          }),
          Effect.fail(wrongUsage([], "An argument holds an API key.")),
        )
      : Command.runWith(command, { version: "0.1.0" })(args),
  ),
  Effect.provideService(CliOutput.Presenter, presenter),
  // Standard output is for what was asked for.
  Effect.provideService(Logger.LogToStderr, true),
);
