/**
 * Workspaces, which exist as long as they contain a chatbot.
 */
import { Administration } from "@parley/core";
import { Effect } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { actor, onDatabase } from "../Database.ts";
import { jsonFlag } from "../Flags.ts";
import { print, printTable } from "../Output.ts";

const list = Command.make("list", { json: jsonFlag }, ({ json }) =>
  Effect.gen(function* () {
    const workspaces = yield* Administration.use((administration) => administration.workspaces);
    yield* printTable(json, workspaces, {
      WORKSPACE: ({ name }) => name,
      CHATBOTS: ({ chatbots }) => chatbots,
    });
  }).pipe(onDatabase),
).pipe(
  Command.withDescription("List the workspaces with the number of their chatbots"),
  Command.withExamples([{ command: "parley workspace list", description: "All of them" }]),
);

const rename = Command.make(
  "rename",
  {
    from: Argument.String("from").pipe(Argument.withDescription("The workspace's name")),
    to: Argument.String("to").pipe(
      Argument.withDescription("Its new name; with --merge it may be another workspace's"),
    ),
    merge: Flag.Boolean("merge").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Move the chatbots even if the other workspace has some"),
    ),
    json: jsonFlag,
  },
  ({ from, json, merge, to }) =>
    Effect.gen(function* () {
      const administration = yield* Administration;
      yield* administration.renameWorkspace(from, to, { merge }, yield* actor);
      yield* print(json, { from, to }, () => `Renamed the workspace "${from}" to "${to}".`);
    }).pipe(onDatabase),
).pipe(
  Command.withDescription("Move all chatbots of a workspace to another name"),
  Command.withExamples([
    { command: "parley workspace rename Acme 'Acme Ltd'", description: "A new name" },
    { command: "parley workspace rename Beta Acme --merge", description: "Into another workspace" },
  ]),
);

export const workspace = Command.make("workspace").pipe(
  Command.withDescription("Workspaces"),
  Command.withExamples([{ command: "parley workspace list", description: "All of them" }]),
  Command.withSubcommands([list, rename]),
);
