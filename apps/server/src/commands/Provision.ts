import type { FieldChange } from "@parley/core";
import { Effect, Option } from "effect";
import { Argument, Command, Flag } from "effect/cli";
import { onDatabase } from "../Database.ts";
import { layerNodeDigest } from "../NodeDigest.ts";
import { planned, provision as apply, type Planned } from "../provision/Provision.ts";
import { Settings } from "../Settings.ts";
import { actor } from "./Actor.ts";
import { jsonFlag, print, printable } from "./Output.ts";
import { wrongUsage } from "./WrongUsage.ts";

const lineOf = ({ after, before, field }: FieldChange) =>
  `  ${field}: ${JSON.stringify(before)} -> ${JSON.stringify(after)}`;

/** Never the steps themselves: they hold the hashes of keys. */
const documentOf = ({ fields, title }: Planned) => ({ title, fields });

const fileOf = Effect.fnUntraced(function* (named: Option.Option<string>) {
  const file = Option.getOrElse(named, () => null) ?? (yield* Settings).provision;
  return file ?? (yield* wrongUsage(["provision"], "Name a file, or set PARLEY_PROVISION."));
}, Effect.provide(Settings.layer));

export const provision = Command.make(
  "provision",
  {
    file: Argument.Path("file").pipe(
      Argument.optional,
      Argument.withDescription("The provisioning file; that of PARLEY_PROVISION without it"),
    ),
    dryRun: Flag.Boolean("dry-run").pipe(
      Flag.withDefault(false),
      Flag.withDescription("Print the difference and change nothing"),
    ),
    json: jsonFlag,
  },
  ({ dryRun, file: named, json }) =>
    Effect.gen(function* () {
      const file = yield* fileOf(named);
      yield* Effect.gen(function* () {
        const plan = yield* dryRun
          ? planned(file, process.env)
          : apply(file, process.env, yield* actor);
        yield* print(json, { dryRun, changes: plan.map(documentOf) }, () =>
          plan.length === 0
            ? "There is nothing to change."
            : printable(
                plan.flatMap(({ fields, title }) => [title, ...fields.map(lineOf)]).join("\n"),
              ),
        );
      }).pipe(Effect.provide(layerNodeDigest), onDatabase);
    }),
).pipe(
  Command.withDescription(
    "Make the store what a provisioning file declares, and print what changed",
  ),
  Command.withExamples([
    {
      command: "parley provision chatbots.json --dry-run",
      description: "See the difference first",
    },
    { command: "parley provision chatbots.json", description: "Apply it; again changes nothing" },
  ]),
);
