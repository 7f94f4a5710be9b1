import { Administration } from "@parley/core";
import { ChatbotRegistry } from "@parley/core/ports";
import { Config, Effect, FileSystem } from "effect";
import { Argument } from "effect/cli";
import { plan, provision as apply } from "../../provision/Provision.ts";
import { toProvisionFile } from "../../provision/ProvisionFile.ts";
import { actor, onDatabase } from "../Database.ts";
import { makeCommand } from "../Declaration.ts";
import { switchFlag } from "../Flags.ts";
import { pluralize, print, printable } from "../Output.ts";

export const provision = makeCommand("provision", {
  description: "Apply a provisioning file and print the changes",
  examples: {
    "parley provision chatbots.json --dry-run": "Only print the changes",
    "parley provision chatbots.json": "Apply the file; applying it again changes nothing",
    "parley provision --export chatbots.json":
      "Write the chatbots and their live keys into a new file, for another database",
  },
  flags: {
    file: Argument.Path("file").pipe(
      Argument.withFallbackConfig(Config.String("PARLEY_PROVISION")),
      Argument.withDescription("The provisioning file (default: PARLEY_PROVISION)"),
    ),
    dryRun: switchFlag("dry-run", "Print the changes without applying them"),
    isExport: switchFlag("export", "Write the file instead; it must not exist"),
  },
  run: Effect.fnUntraced(function* ({ dryRun, file, isExport }) {
    if (isExport) return yield* exportTo(file);
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

/** Writes the chatbots and their live keys. Only the file's owner may read it, because it has signing secrets. */
const exportTo = Effect.fnUntraced(function* (file: string) {
  const { chatbots } = yield* Administration;
  const now = yield* ChatbotRegistry.use((registry) => registry.now);
  const content = toProvisionFile(yield* chatbots, now);
  const files = yield* FileSystem.FileSystem;
  yield* files.writeFileString(file, `${JSON.stringify(content, null, 2)}\n`, {
    flag: "wx",
    mode: 0o600,
  });
  const keys = content.chatbots.flatMap(({ keys }) => keys ?? []).length;
  const counts = { chatbots: content.chatbots.length, keys };
  yield* print(
    counts,
    `Wrote ${pluralize(counts.chatbots, "chatbot")} and ${pluralize(keys, "key")}. The file has the secrets of keys that sign visitor tokens.`,
  );
});
