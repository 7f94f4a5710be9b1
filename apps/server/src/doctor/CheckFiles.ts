/**
 * Whether the documents and the provisioning file can be read.
 */
import { readKnowledge } from "@parley/llm";
import { Effect, FileSystem } from "effect";
import { layerNodeDigest } from "../NodeDigest.ts";
import { readProvisionFile } from "../provision/ProvisionFile.ts";
import { Settings } from "../Settings.ts";
import { told } from "../Told.ts";
import { failed, ok, warning, type Finding } from "./Finding.ts";

/** The documents of a folder. */
export const checkFolder = (folder: string, hint: string) =>
  readKnowledge(folder).pipe(
    Effect.map(({ documents }) =>
      documents === 0
        ? warning("documents", `${folder} holds no document.`, "Documents end with .md or .txt.")
        : ok("documents", `${folder} holds ${documents}.`),
    ),
    Effect.catch((error) => Effect.succeed(failed("documents", told(error).message, hint))),
  );

export const checkFiles = Effect.gen(function* () {
  const { knowledgeDir, knowledgeRoot, provision } = yield* Settings;
  const findings: Array<Finding> = [];
  if (knowledgeDir !== null) {
    findings.push(
      yield* checkFolder(
        knowledgeDir,
        "Correct PARLEY_KNOWLEDGE_DIR, or let this user read there.",
      ),
    );
  }
  if (knowledgeRoot !== null) {
    const files = yield* FileSystem.FileSystem;
    findings.push(
      yield* files.readDirectory(knowledgeRoot).pipe(
        Effect.as(ok("documents", `${knowledgeRoot} can be read.`)),
        Effect.orElseSucceed(() =>
          failed(
            "documents",
            `PARLEY_KNOWLEDGE_ROOT ${knowledgeRoot} cannot be read.`,
            "Correct it, or let this user read there.",
          ),
        ),
      ),
    );
  }
  if (provision !== null) {
    findings.push(
      yield* readProvisionFile(provision, process.env).pipe(
        Effect.map((chatbots) => ok("provisioning", `${provision} declares ${chatbots.length}.`)),
        Effect.catch((error) => {
          const hint = "Correct it; docs/provisioning.schema.json describes the file.";
          return Effect.succeed(failed("provisioning", told(error).message, hint));
        }),
        Effect.provide(layerNodeDigest),
      ),
    );
  }
  return findings;
});
