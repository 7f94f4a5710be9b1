import { Config, Effect } from "effect";
import { Argument } from "effect/cli";
import { plan, provision as apply } from "../../provision/Provision.ts";
import { actor, onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { switchFlag } from "../Flags.ts";
import { print, printable } from "../Output.ts";

export const provision = makeCommand("provision", {
  description: "Apply a provisioning file and print the changes",
  examples: {
    "parley provision chatbots.json --dry-run": "Only print the changes",
    "parley provision chatbots.json": "Apply the file; applying it again changes nothing",
  },
  flags: {
    file: Argument.Path("file").pipe(
      Argument.withFallbackConfig(Config.String("PARLEY_PROVISION")),
      Argument.withDescription("The provisioning file (default: PARLEY_PROVISION)"),
    ),
    dryRun: switchFlag("dry-run", "Print the changes without applying them"),
  },
  run: Effect.fnUntraced(function* ({ dryRun, file }) {
    const plannedChanges = yield* (dryRun ? plan : apply)(file, process.env, yield* actor);
    // Omits `apply`, which contains the hashes of keys.
    const changes = plannedChanges.map(({ fields, title }) => ({ title, fields }));
    const lines = changes.flatMap(({ fields, title }) => [
      title,
      ...fields.map(
        ({ after, before, field }) =>
          `  ${field}: ${JSON.stringify(before)} -> ${JSON.stringify(after)}`,
      ),
    ]);
    yield* print({ dryRun, changes }, printable(lines.join("\n")) || "There is nothing to change.");
  }, onDatabase),
});
