import { layerDigest } from "@effect/platform-node/NodeCrypto";
import type { FieldChange } from "@parley/core";
import { Effect, Option } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { plan, provision as apply, type Planned } from "../../provision/Provision.ts";
import { Settings } from "../../Settings.ts";
import { actor, onDatabase } from "../Database.ts";
import { wrongUsage } from "../Errors.ts";
import { jsonFlag } from "../Flags.ts";
import { print, printable } from "../Output.ts";

const lineOf = ({ after, before, field }: FieldChange) =>
  `  ${field}: ${JSON.stringify(before)} -> ${JSON.stringify(after)}`;

/** Never the steps themselves: they contain the hashes of keys. */
const documentOf = ({ fields, title }: Planned) => ({ title, fields });

export const provision = Command.make(
  "provision",
  {
    file: Argument.Path("file").pipe(
      Argument.optional,
      Argument.withDescription("The provisioning file; by default the one of PARLEY_PROVISION"),
    ),
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print the difference and change nothing"),
    ),
    json: jsonFlag,
  },
  ({ dryRun, file: named, json }) =>
    Effect.gen(function* () {
      const file = Option.getOrNull(named) ?? (yield* Settings).provision;
      if (file === null) {
        return yield* wrongUsage(["provision"], "Name a file, or set PARLEY_PROVISION.");
      }
      yield* Effect.gen(function* () {
        const changes = yield* dryRun
          ? plan(file, process.env)
          : apply(file, process.env, yield* actor);
        yield* print(json, { dryRun, changes: changes.map(documentOf) }, () =>
          changes.length === 0
            ? "There is nothing to change."
            : printable(
                changes.flatMap(({ fields, title }) => [title, ...fields.map(lineOf)]).join("\n"),
              ),
        );
      }).pipe(Effect.provide(layerDigest), onDatabase);
    }).pipe(Effect.provide(Settings.layer)),
).pipe(
  Command.withDescription("Make the store match a provisioning file, and print the changes"),
  Command.withExamples([
    {
      command: "parley provision chatbots.json --dry-run",
      description: "Print the difference first",
    },
    { command: "parley provision chatbots.json", description: "Apply it; again changes nothing" },
  ]),
);
