/**
 * Workspaces, which exist as long as they contain a chatbot.
 */
import { Administration } from "@parley/core";
import { Effect } from "effect";
import { Argument, Command } from "effect/cli";
import { actor, onDatabase } from "../Database.ts";
import { makeCommand, withHelp } from "../Declaration.ts";
import { switchFlag } from "../Flags.ts";
import { print, table } from "../Output.ts";

const list = makeCommand("list", {
  description: "List the workspaces with the number of their chatbots",
  examples: { "parley workspace list": "All of them" },
  flags: {},
  run: Effect.fnUntraced(function* () {
    const workspaces = yield* Administration.use((administration) => administration.workspaces);
    yield* print(
      workspaces,
      table(
        workspaces.map(({ chatbots, name }) => ({ name, chatbots })),
        ["name", "chatbots"],
      ),
    );
  }, onDatabase),
});

const rename = makeCommand("rename", {
  description: "Move all chatbots of a workspace to another name",
  examples: {
    "parley workspace rename Acme 'Acme Ltd'": "A new name",
    "parley workspace rename Beta Acme --merge": "Into another workspace",
  },
  flags: {
    from: Argument.String("from").pipe(Argument.withDescription("The workspace's name")),
    to: Argument.String("to").pipe(
      Argument.withDescription("Its new name; with --merge it may be another workspace's"),
    ),
    merge: switchFlag("merge", "Move the chatbots even if the other workspace has some"),
  },
  run: Effect.fnUntraced(function* ({ from, merge, to }) {
    const administration = yield* Administration;
    yield* administration.renameWorkspace(from, to, { merge }, yield* actor);
    yield* print({ from, to }, `Renamed the workspace "${from}" to "${to}".`);
  }, onDatabase),
});

export const workspace = Command.make("workspace").pipe(
  withHelp({ description: "Workspaces", examples: { "parley workspace list": "All of them" } }),
  Command.withSubcommands([list, rename]),
);
